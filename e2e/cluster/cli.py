"""The command line: `python -m e2e.cluster up`, `down`, `status`, …"""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from e2e import packages
from e2e.cluster import build as builder
from e2e.cluster.choose import Backend
from e2e.cluster.errors import ClusterError
from e2e.cluster.local import leftovers, settings
from e2e.cluster.local.cluster import LocalCluster
from e2e.cluster.local.layout import Layout
from e2e.cluster.make import ACCELERATORS, DEFAULT_NAME, attach, create, remove

console = Console(stderr=True)
app = typer.Typer(
    help="A Kubernetes cluster for demos and tests on this machine.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Name = Annotated[
    str, typer.Option("--name", help="The cluster's name; clusters of different names can run side by side.")
]
Archives = Annotated[
    list[Path],
    typer.Argument(help="Image archives in docker's format.", exists=True, dir_okay=False, resolve_path=True),
]
PASS_ON = {
    "allow_interspersed_args": False,
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "help_option_names": [],
}


@app.command()
def up(
    name: Name = DEFAULT_NAME,
    backend: Annotated[
        Backend,
        typer.Option(
            help="auto takes the current kubeconfig context (asks first), else kind (needs Docker; not run by our tests), "
            "else local (needs root)."
        ),
    ] = Backend.AUTO,
    nodes: Annotated[int, typer.Option(help="How many nodes; a running local cluster can grow.", min=1)] = 1,
    accelerators: Annotated[
        int, typer.Option("--simulated-accelerators", help="How many simulated accelerators each node offers.", min=0)
    ] = ACCELERATORS,
    images: Annotated[
        list[Path] | None,
        typer.Option(help="An image archive to load; can be repeated.", exists=True, resolve_path=True),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Answer yes to every question.")] = False,
) -> None:
    """Make a cluster, or say that it runs."""
    create(name, backend, nodes, accelerators, images or (), lambda text: yes or typer.confirm(text, err=True), console)
    console.print(f"kubeconfig: {attach(name).kubeconfig}", highlight=False, soft_wrap=True)


@app.command()
def down(name: Name = DEFAULT_NAME) -> None:
    """Remove the cluster and everything that it left on this machine, also after a crash."""
    found = remove(name)
    console.print(f"cluster {name!r} is gone" if found else f"there was no cluster {name!r}", highlight=False)


@app.command()
def status(name: Name = DEFAULT_NAME) -> None:
    """Show the cluster's backend and nodes; ends with status 1 when it is not healthy or does not exist."""
    try:
        cluster = attach(name)
    except ClusterError as error:
        left = leftovers.find(Layout.of(name))
        hint = f" An unfinished one has left things behind; remove them (down --name {name})." if left else ""
        raise ClusterError(f"{error}{hint}") from None
    healthy = cluster.ready()
    table = Table("cluster", "backend", "nodes", "healthy", "kubeconfig", box=None)
    count = str(len(cluster.nodes)) if healthy else "?"
    table.add_row(name, cluster.backend, count, "yes" if healthy else "no", str(cluster.kubeconfig))
    Console(soft_wrap=True).print(table)
    if not healthy:
        if isinstance(cluster, LocalCluster):
            console.print(f"not running: {', '.join(cluster.faults()) or 'nothing'}", highlight=False)
            console.print(f"logs: {cluster.layout.logs}", highlight=False, soft_wrap=True)
        raise typer.Exit(1)


@app.command()
def build() -> None:
    """Build the local cluster's programs into the cache, and nothing else."""
    packages.install(settings.NEEDED, settings.PURPOSE, lambda text: console.print(text, highlight=False))
    for name, file in builder.ensure(console).items():
        console.print(f"{name:<12} {file}", highlight=False, soft_wrap=True)


@app.command("load-image")
def load_image(archives: Archives, name: Name = DEFAULT_NAME) -> None:
    """Put the images of ARCHIVES on every node."""
    attach(name).load(archives)


@app.command(context_settings=PASS_ON)
def kubectl(context: typer.Context, name: Name = DEFAULT_NAME) -> None:
    """Run kubectl against the cluster; everything after `kubectl` is kubectl's own."""
    cluster = attach(name)
    program = str(cluster.kubectl_program)
    os.execv(program, [program, f"--kubeconfig={cluster.kubeconfig}", *context.args])


@app.command()
def kubeconfig(name: Name = DEFAULT_NAME) -> None:
    """Print the path of the cluster's kubeconfig."""
    print(attach(name).kubeconfig)


@app.command("exec-node", context_settings=PASS_ON)
def exec_node(context: typer.Context, node: str, name: Name = DEFAULT_NAME) -> None:
    """Run a command on NODE: its name, or its number for a local node."""
    full = attach(name).node_command(f"node{node}" if node.isdigit() else node, context.args or ["sh"])
    os.execvp(full[0], full)


def main() -> None:
    """Run the command line; failures that are understood end with their message and status 1."""
    try:
        app()
    except ClusterError as error:
        console.print(f"[bold red]error:[/bold red] {escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(1)

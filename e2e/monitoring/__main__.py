"""`python -m e2e.monitoring --name CLUSTER`: Prometheus on a cluster that has Steelyard, known to the operator."""

from typing import Annotated

import typer
from rich.console import Console

from e2e.cluster.make import DEFAULT_NAME, attach
from e2e.errors import ToolError
from e2e.monitoring import URL, connect_operator, install
from e2e.platform import Platform


def main(name: Annotated[str, typer.Option(help="The cluster.")] = DEFAULT_NAME) -> None:
    """Install Prometheus (built when it is not cached) and point the operator at it."""
    console = Console(stderr=True)
    try:
        platform = Platform(attach(name))
        install(platform, console)
        connect_operator(platform)
    except ToolError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error
    typer.echo(f"Prometheus answers in the cluster at {URL}; the operator reads it.")


if __name__ == "__main__":
    typer.run(main)

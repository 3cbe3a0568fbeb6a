"""`steelyard explain`: why a service has the replicas it has, and what would change that."""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from yaml import YAMLError

from steelyard.cli.explanation import Explanation, explain
from steelyard.observe.resources import INFERENCE_SERVICE

if TYPE_CHECKING:
    from steelyard.observe.client import Api

GONE, UNREACHABLE = 1, 2
WATCH_SECONDS = 2.0


def explain_command(
    name: Annotated[str, typer.Argument(help="Name of the InferenceService.")],
    namespace: Annotated[str, typer.Option("-n", "--namespace", help="Its namespace.")] = "default",
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Show it anew every two seconds, until interrupted.")
    ] = False,
    kubeconfig: Annotated[Path | None, typer.Option(help="Default: $KUBECONFIG, or ~/.kube/config.")] = None,
) -> None:
    """Say what runs now, what the load needs, what limits it, and what would change it.

    All of it stands in the service's status; nothing but that object is read. Exit status: 0 shown, 1 there is no such
    service, 2 the API server cannot be reached.
    """
    # The client of Kubernetes takes a third of this program's start, and no other command needs it.
    from steelyard.observe.client import ApiError, Missing, connect
    from steelyard.observe.wire import NoServer

    console = Console()
    try:
        api = connect(str(kubeconfig) if kubeconfig else None)
    except (ValueError, TypeError, AttributeError, LookupError, YAMLError) as failure:
        named = f"--kubeconfig {kubeconfig}" if kubeconfig else "the kubeconfig ($KUBECONFIG, or ~/.kube/config)"
        told = f"{named} cannot be read: {' '.join(str(failure).split())}; name a kubeconfig file, as kubectl reads it"
        typer.echo(told, err=True)
        raise typer.Exit(UNREACHABLE) from failure
    except (NoServer, OSError) as failure:
        typer.echo(f"the API server cannot be asked: {failure}", err=True)
        raise typer.Exit(UNREACHABLE) from failure
    try:
        first = shown(api, namespace, name)
        if not watch:
            console.print(first)
            return
        with Live(first, console=console, auto_refresh=False) as live:
            while True:
                time.sleep(WATCH_SECONDS)
                live.update(shown(api, namespace, name), refresh=True)
    except KeyboardInterrupt:
        return
    except Missing as failure:
        typer.echo(f"InferenceService {namespace}/{name}: {failure}", err=True)
        raise typer.Exit(GONE) from failure
    except (ApiError, NoServer, OSError) as failure:
        typer.echo(f"the API server cannot be asked: {failure}", err=True)
        raise typer.Exit(UNREACHABLE) from failure


def shown(api: "Api", namespace: str, name: str) -> RenderableType:
    """Read the service and lay its explanation out."""
    return layout(explain(api.get(INFERENCE_SERVICE, namespace, name), datetime.now(UTC)))


def layout(found: Explanation) -> RenderableType:
    """Lay an explanation out for a terminal of any width; without a terminal it is plain text."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("role", "ready", "starting", "draining", "wanted", "bounds"):
        table.add_column(heading, justify="left" if heading in ("role", "bounds") else "right")
    for row in found.now:
        table.add_row(*row)
    parts: list[RenderableType] = [Text(found.title, style="bold"), Text(found.objectives)]
    for heading, inside in (
        ("NOW", table),
        ("NEEDED", Text("\n".join([found.needed, *(f"· {line}" for line in found.because)]))),
        ("LIMITED BY", Text(found.limited_by)),
        ("WHAT WOULD CHANGE IT", Text("\n".join(found.would_change) or "nothing known")),
        ("EARLIER", Text("\n".join(found.history) or "no change yet")),
    ):
        parts += [Text(""), Text(heading, style="bold"), Padding(inside, (0, 0, 0, 2))]
    return Group(*parts)

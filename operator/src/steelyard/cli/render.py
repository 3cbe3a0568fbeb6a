"""`steelyard render`: print the children of an InferenceService exactly as the operator would apply them."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from steelyard.api.accelerator import Accelerator
from steelyard.api.quantities import Duration, Quantity
from steelyard.apply.drift import stamped
from steelyard.build import render as building
from steelyard.catalog.engines import ENGINES
from steelyard.cli.inputs import hardware, services, text_of
from steelyard.cli.refusing import refused
from steelyard.decide.feasibility.service import judged
from steelyard.decide.installation import as_installed, of_another_version, without_image
from steelyard.decide.site import Site

UNUSABLE, REFUSED = 1, 2


class Plain(yaml.SafeDumper):
    """YAML for people: no anchors, and files inside a manifest as blocks of lines."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


Plain.add_representer(str, _text)
for kind in (Duration, Quantity):
    Plain.add_representer(kind, lambda dumper, text: _text(dumper, str(text)))


def render(
    file: Annotated[str, typer.Option("-f", "--file", help="Manifest of an InferenceService; '-' reads the input.")],
    accelerators: Annotated[
        list[Path] | None, typer.Option("--accelerators", help="Manifests of Accelerators, besides the catalogue's.")
    ] = None,
    gateway_image: Annotated[str, typer.Option(help="The operator's setting images.gateway.")] = "steelyard/gateway",
    engine_image: Annotated[str, typer.Option(help="The operator's setting images.engine.")] = "steelyard/engine",
    quantize_image: Annotated[str, typer.Option(help="The operator's setting images.quantize.")] = "steelyard/quantize",
    engines: Annotated[
        list[str] | None,
        typer.Option("--engines", metavar="NAME=IMAGE", help="The operator's setting images.engines, an engine each."),
    ] = None,
    prometheus_namespace: Annotated[str | None, typer.Option(help="The operator's setting of that name.")] = None,
    operator_namespace: Annotated[str | None, typer.Option(help="Where the operator runs.")] = None,
) -> None:
    """Print the children of an InferenceService, as the operator would apply them.

    Nothing is sent anywhere. An owner reference needs the uid that the API server gives, so it is printed only where
    the manifest has one. What the API server or the operator would refuse is refused in their words, on standard error; what they
    would accept with a note is printed with the note there. Exit status: 0 printed, 1 the file is no InferenceService, 2 refused.
    """
    site = Site(
        gateway_image=gateway_image,
        engine_image=engine_image,
        quantize_image=quantize_image,
        engine_images=images(engines or []),
        prometheus_namespace=prometheus_namespace,
        operator_namespace=operator_namespace,
    )
    try:
        known = hardware(accelerators or ())
        bodies = services(_input() if file == "-" else text_of(Path(file)), file)
    except ValueError as failure:
        typer.echo(str(failure), err=True)
        raise typer.Exit(UNUSABLE) from failure
    manifests = [manifest for body in bodies for manifest in children(body, known, site)]
    typer.echo(yaml.dump_all(manifests, Dumper=Plain, sort_keys=False, width=120), nl=False)


def _input() -> str:
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as failure:
        raise ValueError(f"-: byte {failure.start} of the input is not UTF-8; give a text") from failure


def children(body: dict[str, Any], known: dict[str, Accelerator | None], site: Site) -> list[dict[str, Any]]:
    """Render one service, or end with the reasons why it is refused."""
    service, reasons = refused(body, known)
    if service is not None:
        images = site.engine_images
        reasons += [str(one) for one in (*without_image(service, images, known), *of_another_version(service, images))]
    if service is None or reasons:
        for reason in reasons:
            typer.echo(reason, err=True)
        raise typer.Exit(REFUSED)
    for note in judged(as_installed(service, site.engine_images), known).warned:
        typer.echo(f"note: {note}", err=True)
    return [stamped(manifest) for manifest in building.children(service, known, site)]


def images(named: list[str]) -> dict[str, str]:
    """Read NAME=IMAGE of engines that are not ours."""
    others = [name for name, facts in ENGINES.items() if not facts.backend]
    found = {}
    for one in named:
        name, _, image = one.partition("=")
        if name not in others or not image:
            raise typer.BadParameter(
                f"{one!r}: write NAME=IMAGE, NAME one of {', '.join(others)}", param_hint="--engines"
            )
        found[name] = image
    return found

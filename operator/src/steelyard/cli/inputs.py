"""Files that commands read. Whatever is wrong with one is a ValueError that names the file, what is wrong, and the remedy."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import to_json

from steelyard.api.accelerator import Accelerator
from steelyard.catalog.accelerators import ACCELERATORS
from steelyard.decide import accept


def text_of(path: Path) -> str:
    """Read a text; a byte order mark is left out."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as failure:
        raise ValueError(f"{path}: {failure.strerror or failure}") from failure
    except UnicodeDecodeError as failure:
        raise ValueError(f"{path}: byte {failure.start} is not UTF-8; name a text file, saved as UTF-8") from failure


def json_of(path: Path) -> dict[str, Any]:
    """Read a JSON object."""
    try:
        content = json.loads(text_of(path))
    except (json.JSONDecodeError, RecursionError) as failure:
        raise ValueError(f"{path}: is not JSON: {failure}") from failure
    if not isinstance(content, dict):
        raise ValueError(f"{path}: holds {_shown(content)}; it must hold one JSON object, {{…}}")
    return content


def documents(text: str, name: str) -> list[dict[str, Any]]:
    """Read the objects of a YAML stream; lists of objects are taken apart. `name` is the file's, for messages."""
    try:
        found = list(yaml.safe_load_all(text))
        to_json(found)  # what JSON cannot say, such as a list in itself, no API server takes
    except (yaml.YAMLError, ValueError, RecursionError) as failure:
        raise ValueError(f"{name}: is not YAML that Kubernetes reads: {failure}") from failure
    objects: list[dict[str, Any]] = []
    for document in found:
        if isinstance(document, dict) and document.get("kind") == "List":
            objects += _items(document, name)
        elif isinstance(document, dict):
            objects.append(document)
    return objects


def _items(document: dict[str, Any], name: str) -> list[dict[str, Any]]:
    items = document.get("items", "(absent)")
    if not isinstance(items, list):
        raise ValueError(f"{name}: items of kind List is {_shown(items)}; it must be a list of objects")
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            raise ValueError(f"{name}: items[{index}] of kind List is {_shown(item)}; it must be an object")
    return items


def services(text: str, name: str) -> list[dict[str, Any]]:
    """Read the InferenceServices of a YAML stream, not yet judged; raises where there is none."""
    found = [body for body in documents(text, name) if body.get("kind") == "InferenceService"]
    if not found:
        raise ValueError(f"{name}: holds 0 InferenceServices; name a manifest of kind InferenceService")
    return found


def only_service(path: Path, done: str) -> dict[str, Any]:
    """Read the one InferenceService of a file; `done` says what is done with one: planned, simulated."""
    found = services(text_of(path), str(path))
    if len(found) > 1:
        raise ValueError(f"{path}: holds {len(found)} InferenceServices; one is {done} at a time")
    return found[0]


def hardware(paths: Iterable[Path]) -> dict[str, Accelerator | None]:
    """The catalogue, and the Accelerators of the files of --accelerators beside it."""
    known: dict[str, Accelerator | None] = dict(ACCELERATORS)
    for path in paths:
        try:
            found = documents(text_of(path), str(path))
            if not found:
                raise ValueError(f"{path}: holds 0 Accelerators; name a manifest of kind Accelerator")
            for body in found:
                accelerator = _accelerator(body, path)
                known[accelerator.name] = accelerator
        except ValueError as failure:
            raise ValueError(f"--accelerators {failure}") from failure
    return known


def _accelerator(body: dict[str, Any], path: Path) -> Accelerator:
    if body.get("kind") != "Accelerator":
        raise ValueError(
            f"{path}: kind is {_shown(body.get('kind', '(absent)'))}; only Accelerators are read there, and services with"
            " --file or --service"
        )
    meta = body.get("metadata")
    name = meta.get("name", "(absent)") if isinstance(meta, dict) else "(absent)"
    if not isinstance(name, str) or name == "(absent)":
        raise ValueError(f"{path}: metadata.name is {_shown(name)}; it must be a text, such as my-gpu")
    try:
        return Accelerator.read(body)
    except ValidationError as failure:
        raise ValueError(f"{path}: " + "; ".join(map(str, accept.unreadable(failure)))) from failure


def _shown(value: object) -> str:
    """A value in a message, however large it is."""
    text = value if value == "(absent)" else repr(value)
    return text if isinstance(text, str) and len(text) <= 60 else f"{str(text)[:60]}…"

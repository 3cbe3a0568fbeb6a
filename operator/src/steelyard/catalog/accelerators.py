"""The hardware catalogue: figures with their sources, kept as data and read as the same type that users write.

The charts install each entry as an `Accelerator` object, so the operator reads users' own and ours alike.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from steelyard.api.accelerator import Accelerator


@dataclass(frozen=True)
class Entry:
    """One accelerator of the catalogue. `sources` maps a figure (`memory`, `peak.bf16`) to where it comes from."""

    title: str
    accelerator: Accelerator
    sources: Mapping[str, str]


def read(text: str) -> dict[str, Entry]:
    """Read a catalogue in TOML; raises pydantic's `ValidationError` for a wrong figure, `KeyError` for one without source."""
    return {name: _entry(name, table) for name, table in tomllib.loads(text).items()}


def _entry(name: str, table: dict[str, Any]) -> Entry:
    title, given = table.pop("title"), table.pop("sources")
    accelerator = Accelerator.read({"metadata": {"name": name}, "spec": table})
    default = given.pop("default")
    figures = list(_figures(table))
    if unknown := [key for key in given if not any(f == key or f.startswith(f"{key}.") for f in figures)]:
        raise KeyError(f"{name}: sources name figures that are not there: {', '.join(unknown)}")
    sources = {figure: given.get(figure) or given.get(figure.split(".")[0]) or default for figure in figures}
    return Entry(title=title, accelerator=accelerator, sources=sources)


def _figures(table: Mapping[str, Any]) -> Iterator[str]:
    """Name the figures of an entry: `memory`, `peak.bf16`; labels count as one."""
    for key, value in table.items():
        if isinstance(value, dict) and key != "nodeSelector":
            yield from (f"{key}.{inner}" for inner in value)
        elif key not in ("vendor", "resource", "availability"):
            yield key


CATALOGUE: Mapping[str, Entry] = read((resources.files(__package__) / "accelerators.toml").read_text(encoding="utf-8"))
ACCELERATORS: Mapping[str, Accelerator] = {name: entry.accelerator for name, entry in CATALOGUE.items()}

"""Which typed setting each engine has: the table `abilities.toml`, and how it is asked.

A cell says how far a setting is shown to work (docs/design/engines.md): `run`, the engine ran with it in the tests;
`parsed`, the engine's own argument parser took what is rendered; `rendered`, files in the tests show what is rendered.
Anything else is the reason why an engine lacks it, with the remedy: such a setting is refused.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

from steelyard.api.service import InferenceService

ENGINE_NAMES = ("llama-cpp", "simulated", "vllm", "sglang", "tensorrt-llm")
SHOWN = ("run", "parsed", "rendered")
ROLES = ("prefill", "decode", "aggregated")
ANY = "*"


@dataclass(frozen=True)
class Setting:
    """One typed setting: a field of the spec, the value that this row is about (`*`: any), and each engine's cell.

    `sample` is a part of a spec that sets it, with whatever else it needs; `aggregated` samples only stand in that
    topology.
    """

    title: str
    field: str
    value: str
    cells: Mapping[str, str]
    sample: Mapping[str, Any]

    def shown(self, engine: str) -> str | None:
        """How far it is shown to work on an engine; None: the engine lacks it."""
        return self.cells[engine] if self.cells[engine] in SHOWN else None

    def lack(self, engine: str) -> str | None:
        """Why an engine lacks it and what to do; None: it has it."""
        return None if self.shown(engine) else self.cells[engine]


def read(text: str) -> tuple[Setting, ...]:
    """Read the table; raises KeyError for a row without a cell for some engine, ValueError for an empty cell."""
    return tuple(_setting(row) for row in tomllib.loads(text)["setting"])


def _setting(row: dict[str, Any]) -> Setting:
    every = row.get("every")
    cells = {engine: str(row.get(engine, every) or "") for engine in ENGINE_NAMES}
    if missing := [engine for engine, cell in cells.items() if not cell]:
        raise KeyError(f"{row['title']}: no cell for {', '.join(missing)}")
    return Setting(row["title"], row["field"], row.get("value", ANY), cells, row.get("sample", {}))


def written(service: InferenceService) -> Iterator[tuple[str, str, str]]:
    """Give what the spec sets beyond defaults: where it stands, the field as the table names it, and its value.

    The topology is always given, since its default asks for something too.
    """
    yield "spec.topology", "topology", service.spec.topology
    spec = service.spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    spec.pop("topology", None)
    yield from _leaves("spec", "", spec)


def _leaves(place: str, name: str, value: Any) -> Iterator[tuple[str, str, str]]:
    if not isinstance(value, dict):
        yield place, name, str(value).lower() if isinstance(value, bool) else str(value)
        return
    for key, inner in value.items():
        below = "" if not name and key in ROLES else f"{name}.{key}".lstrip(".")
        yield from _leaves(f"{place}.{key}", below, inner)


@lru_cache(maxsize=4096)  # asked for every setting of a service at each look: a fifth of its CPU otherwise
def row_of(name: str, value: str) -> Setting | None:
    """Find the row about a field's value: the value's own, else the one for any; None: every engine takes it."""
    rows = [row for row in ABILITIES if row.field == name or name.startswith(f"{row.field}.")]
    return next((row for row in rows if row.value == value), None) or next(
        (row for row in rows if row.value == ANY), None
    )


ABILITIES = read((resources.files(__package__) / "abilities.toml").read_text(encoding="utf-8"))

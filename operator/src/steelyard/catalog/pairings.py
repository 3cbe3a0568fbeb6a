"""What prefill and decode must agree on: the table `pairings.toml`.

Conditions are named here and computed by `decide/feasibility/pairing.py`.
"""

import tomllib
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

from steelyard.catalog.versions import Range, Version

CONDITIONS = frozenset({
    "kv-format-differs", "model-context-differs", "tensor-differs", "layout-differs", "prefill-tensor-above-decode",
    "tensor-not-a-multiple", "hybrid", "kv-quantized", "experts", "not-latent", "pipelined", "accelerator-differs", "computes",
    "slice", "rdma",
})  # fmt: skip
_ANY = Range()


@dataclass(frozen=True, slots=True)
class Pairing:
    """One rule; an engine or connector that is None stands for all."""

    when: frozenset[str]
    setting: str
    verdict: Literal["refused", "warned"]
    because: str
    source: str
    engine: str | None = None
    connector: str | None = None
    versions: Range = _ANY


def found(engine: str, connector: str, version: Version | None, holding: AbstractSet[str]) -> tuple[Pairing, ...]:
    """Give the rules that hold, the first for each set of conditions: a version's own comes before the general one."""
    told: dict[frozenset[str], Pairing] = {}
    for rule in PAIRINGS:
        ours = rule.engine in (None, engine) and rule.connector in (None, connector) and rule.versions.holds(version)
        if ours and rule.when <= holding:
            told.setdefault(rule.when, rule)
    return tuple(told.values())


def read(text: str) -> tuple[Pairing, ...]:
    """Read the table; raises ValueError for a condition that nobody computes, TypeError for another unknown field."""
    return tuple(_rule(dict(row)) for row in tomllib.loads(text)["rule"])


def _rule(row: dict[str, Any]) -> Pairing:
    when = frozenset(row.pop("when"))
    if unknown := when - CONDITIONS:
        raise ValueError(f"no such condition: {', '.join(sorted(unknown))}")
    return Pairing(when=when, versions=Range.of_versions(row.pop("versions", "")), **row)


PAIRINGS = read((resources.files(__package__) / "pairings.toml").read_text(encoding="utf-8"))

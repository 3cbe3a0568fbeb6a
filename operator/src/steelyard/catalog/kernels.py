"""Which number formats have a kernel where: the table `kernels.toml`, and how it is asked.

Compute capability decides, never the name of a generation: an RTX PRO 6000 is Blackwell and a MIG slice of an H100 is
Hopper, whatever their names say. Unknown is not refused: the table cannot know every engine's next release.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import resources
from typing import Any, Literal

from steelyard.catalog.versions import Range, Version, capability

Verdict = Literal["good", "fallback", "refused"]
_ANY = Range()
_EVERY = ("auto", "none", "fp8", "int8", "nvfp4")


@dataclass(frozen=True, slots=True)
class Kernel:
    """One row: where it holds, what it says, and who said so."""

    engine: str
    weights: str  # a format, or a pattern of formats
    products: str  # the peak that counts: bf16, fp8, fp4, int8, fp32
    verdict: Verdict
    source: str
    because: str = ""
    vendor: str | None = None
    capability: Range = _ANY
    versions: Range = _ANY
    experts: bool | None = None
    activations: tuple[str, ...] = _EVERY


@dataclass(frozen=True, slots=True)
class Asked:
    """What a kernel is wanted for. `capability` and `version` None: unknown, so rows that need them do not fit."""

    engine: str
    weights: str
    activations: str
    vendor: str
    capability: str | None
    version: Version | None
    experts: bool


def find(asked: Asked) -> Kernel | None:
    """Give the first row that fits; None: nobody knows."""
    return next((row for row in KERNELS if _fits(row, asked)), None)


def _fits(row: Kernel, asked: Asked) -> bool:
    return (
        row.engine == asked.engine
        and fnmatchcase(asked.weights, row.weights)
        and asked.activations in row.activations
        and row.vendor in (None, asked.vendor)
        and row.experts in (None, asked.experts)
        and row.capability.holds(capability(asked.capability))
        and row.versions.holds(asked.version)
    )


def read(text: str) -> tuple[Kernel, ...]:
    """Read the table; raises TypeError for a field that rows do not have, ValueError for a wrong range."""
    return tuple(_row(dict(row)) for row in tomllib.loads(text)["kernel"])


def _row(row: dict[str, Any]) -> Kernel:
    spread: Mapping[str, Any] = {
        "capability": Range.of_capabilities(row.pop("capability", "")),
        "versions": Range.of_versions(row.pop("versions", "")),
        "activations": tuple(row.pop("activations", _EVERY)),
    }
    return Kernel(**row, **spread)


KERNELS = read((resources.files(__package__) / "kernels.toml").read_text(encoding="utf-8"))

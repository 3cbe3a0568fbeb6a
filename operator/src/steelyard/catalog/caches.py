"""Which formats of the KV cache an engine has: the table `caches.toml`, asked like that of kernels."""

import tomllib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import resources
from typing import Any

from steelyard.catalog.kernels import Verdict
from steelyard.catalog.versions import Range, Version, capability

_ANY = Range()


@dataclass(frozen=True, slots=True)
class CacheFormat:
    """One row."""

    engine: str
    kv: str  # a format, or a pattern of formats
    verdict: Verdict
    source: str
    because: str = ""
    vendor: str | None = None
    capability: Range = _ANY
    versions: Range = _ANY


def find(engine: str, kv: str, vendor: str, generation: str | None, version: Version | None) -> CacheFormat | None:
    """Give the first row that fits; None: nobody knows."""
    for row in CACHES:
        of_engine = row.engine == engine and fnmatchcase(kv, row.kv) and row.vendor in (None, vendor)
        if of_engine and row.capability.holds(capability(generation)) and row.versions.holds(version):
            return row
    return None


def read(text: str) -> tuple[CacheFormat, ...]:
    """Read the table; raises TypeError for a field that rows do not have, ValueError for a wrong range."""
    return tuple(_row(dict(row)) for row in tomllib.loads(text)["cache"])


def _row(row: dict[str, Any]) -> CacheFormat:
    generation, versions = row.pop("capability", ""), row.pop("versions", "")
    return CacheFormat(**row, capability=Range.of_capabilities(generation), versions=Range.of_versions(versions))


CACHES = read((resources.files(__package__) / "caches.toml").read_text(encoding="utf-8"))

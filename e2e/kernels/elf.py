"""What a shared library asks for and offers, read with binutils' `readelf`."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Symbol(NamedTuple):
    """One entry of the dynamic symbol table; `version` is empty when the symbol has none."""

    name: str
    version: str
    kind: str  # FUNC, OBJECT, NOTYPE, …
    weak: bool
    defined: bool
    size: int  # bytes


def symbols(library: Path) -> Iterator[Symbol]:
    """Every dynamic symbol, defined or wanted."""
    for line in _readelf("--dyn-syms", library).splitlines():
        fields = line.split()  # number: value size kind binding visibility section name[@version]
        if len(fields) < 8 or not re.fullmatch(r"\d+:", fields[0]):
            continue
        name, _, version = fields[7].partition("@")
        yield Symbol(name, version.strip("@"), fields[3], fields[4] == "WEAK", fields[6] != "UND", int(fields[2], 0))


def needed(library: Path) -> list[str]:
    """The names of the libraries it is linked with."""
    return re.findall(r"NEEDED.*\[(.+)\]", _readelf("--dynamic", library))


def version_owners(library: Path) -> dict[str, str]:
    """For each symbol version that it wants, the library that must have it."""
    owners: dict[str, str] = {}
    owner = ""
    for line in _readelf("--version-info", library).splitlines():
        if "Version definition" in line:
            owner = ""
        if found := re.search(r"File: (\S+)", line):
            owner = found.group(1)
        if owner and (found := re.search(r"Name: (\S+)\s+Flags: .*Version:", line)):
            owners[found.group(1)] = owner
    return owners


def _readelf(what: str, library: Path) -> str:
    command = ["readelf", what, "--wide", str(library)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout

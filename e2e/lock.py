"""Reads `uv.lock` the way pip wants it: pinned requirements with hashes."""

from __future__ import annotations

import re
import subprocess

from e2e.cache import REPOSITORY


def export(*selection: str) -> str:
    """Requirements of what `selection` (flags of `uv export`) names, one entry a package, hashes on the lines after it."""
    command = ["uv", "export", "--frozen", "--quiet", "--no-header", "--no-annotate", *selection]
    return subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout


def entry(lines: str, name: str) -> str:
    """The lines of one package, hashes included; LookupError when it is not there."""
    found = re.search(rf"^{re.escape(name)}==(?:.|\\\n)*?[^\\]\n", lines, re.MULTILINE)
    if found is None:
        raise LookupError(f"uv.lock has no {name} there: add it to pyproject.toml and run `uv lock`")
    return found.group(0)

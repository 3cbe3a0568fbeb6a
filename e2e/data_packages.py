"""Programs and weights that travel as Python packages: the dependency group `data`, pinned with hashes in `uv.lock`."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from e2e.cache import REPOSITORY


def version(name: str) -> str:
    """The version that `uv.lock` pins."""
    return _requirement(name).split("==", 1)[1].split()[0]


def install(name: str, site: Path) -> None:
    """Install one package of the group, without its dependencies, into the new folder `site`."""
    wanted = site.with_suffix(".txt")
    wanted.write_text(_requirement(name))
    command = [
        "uv",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--require-hashes",
        "--target",
        str(site),
        "-r",
        str(wanted),
    ]
    subprocess.run(command, check=True)
    wanted.unlink()


def _requirement(name: str) -> str:
    """The package's lines of an exported lock, hashes included; LookupError when the group lacks it."""
    command = ["uv", "export", "--frozen", "--quiet", "--only-group", "data", "--no-header", "--no-annotate"]
    lines = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout
    found = re.search(rf"^{re.escape(name)}==(?:.|\\\n)*?[^\\]\n", lines, re.MULTILINE)
    if found is None:
        raise LookupError(f"the dependency group `data` has no {name}: add it to pyproject.toml and run `uv lock`")
    return found.group(0)

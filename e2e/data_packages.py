"""Programs and weights that travel as Python packages: the dependency group `data`, pinned with hashes in `uv.lock`."""

from __future__ import annotations

import subprocess
from pathlib import Path

from e2e import lock


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
    return lock.entry(lock.export("--only-group", "data"), name)

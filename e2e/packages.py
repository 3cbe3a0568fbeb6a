"""Debian packages that a part of the tools needs: what is missing, and installing it."""

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from e2e.cache import cache_root, locked
from e2e.errors import ToolError

Needed = Mapping[str, str]
"""For each program (on PATH, or a file's full path) the Debian package that brings it."""

_PATH = f"{os.defpath}:/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin"


class PackageError(ToolError):
    """A package is missing and cannot be installed here; the message names it and the remedy."""


def present(item: str) -> bool:
    """Whether a needed program is there; system folders count even when the caller's PATH lacks them."""
    if item.startswith("/"):
        return Path(item).exists()
    return shutil.which(item) is not None or shutil.which(item, path=_PATH) is not None


def missing(needed: Needed, there: Callable[[str], bool] = present) -> list[str]:
    """The packages of which some program is not there."""
    return sorted({package for item, package in needed.items() if not there(item)})


def install(needed: Needed, purpose: str, say: Callable[[str], None]) -> None:
    """Install what `purpose` lacks with apt; raise `PackageError` with the remedy where that is not possible."""
    names = missing(needed)
    if not names:
        return
    wanted = " ".join(names)
    if not shutil.which("apt-get"):
        raise PackageError(f"{purpose} needs the programs of these Debian packages: {wanted}. Install their like.")
    if os.geteuid() != 0:
        raise PackageError(f"{purpose} needs packages: run `sudo apt-get install {wanted}`.")
    say(f"installing {wanted}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with locked(cache_root() / "apt.lock"):  # image builds and the cluster may want packages at the same time
        for command in (["update", "-q"], ["install", "-q", "-y", "--no-install-recommends", *names]):
            done = subprocess.run(["apt-get", *command], env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                raise PackageError(f"apt-get {' '.join(command)} failed: {done.stderr.strip()[-1500:]}")
    if still := missing(needed):
        raise PackageError(f"apt-get reported success but these packages are still missing: {' '.join(still)}.")

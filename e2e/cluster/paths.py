"""Where things lie: the cache of this machine's user and the output folder of this checkout."""

import os
import re
from pathlib import Path

from e2e.cluster.errors import ClusterError

REPOSITORY = Path(__file__).resolve().parents[2]
MODULES = Path(__file__).resolve().parent / "modules"

NAME = re.compile(r"[a-z]([a-z0-9-]{0,28}[a-z0-9])?")


def cache() -> Path:
    """The folder of things built once and kept; `STEELYARD_CACHE` moves it."""
    return Path(os.environ.get("STEELYARD_CACHE") or Path.home() / ".cache" / "steelyard")


def output(name: str) -> Path:
    """The folder in this checkout where a cluster's kubeconfig and description are put for people and tests."""
    return REPOSITORY / "e2e" / "out" / name


def check_name(name: str) -> str:
    """Return `name` if it can name a cluster: it becomes part of cgroup paths, folders and process environments."""
    if not NAME.fullmatch(name):
        raise ClusterError(
            f"--name {name!r} cannot name a cluster: use 1 to 30 lower-case letters, digits and hyphens, "
            "beginning with a letter and not ending with a hyphen."
        )
    return name

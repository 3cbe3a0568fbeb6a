"""The two C programs of the benchmark, compiled into the cache."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

from e2e import packages
from e2e.cache import cached, content_key
from e2e.errors import ToolError

_SOURCES = Path(__file__).parent / "native"
_FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror")
_NEEDED = {"gcc": "gcc", "/usr/include/stdio.h": "libc6-dev", "taskset": "util-linux"}


def programs() -> tuple[Path, Path]:
    """The engine stub and the load client. Raises ToolError where they cannot be compiled, with what the compiler said."""
    packages.install(_NEEDED, "the benchmark", lambda said: print(said, flush=True))
    key = content_key([" ".join(_FLAGS), platform.machine(), _SOURCES])
    folder = cached("bench", key, _compile)
    return folder / "engine", folder / "load"


def _compile(folder: Path) -> None:
    for name in ("engine", "load"):
        command = ["gcc", *_FLAGS, "-o", str(folder / name), str(_SOURCES / f"{name}.c"), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ToolError(f"gcc cannot compile {name}.c: {done.stderr.strip()}")

"""`vllm-router` from the package index, pinned, in a folder of the cache: it is compared with, never imported here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from e2e.cache import cached
from e2e.errors import ToolError

VERSION = "0.1.17"


def installed() -> Path:
    """The folder to put on PYTHONPATH; about 95 MB, fetched with uv on first use."""
    return cached("vllm-router", f"{VERSION}-py{sys.version_info.major}.{sys.version_info.minor}", _install)


def _install(folder: Path) -> None:
    command = ["uv", "pip", "install", "--quiet", "--python", sys.executable, "--target", str(folder)]
    done = subprocess.run([*command, f"vllm-router=={VERSION}"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ToolError(f"vllm-router {VERSION} cannot be installed: {done.stderr.strip()[-1500:]}")

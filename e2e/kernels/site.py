"""The packages of the image `steelyard/quantize`: what the kernels' `uv.lock` pins, changed to run on processors alone, made small.

Laid out here and not in the image, so that the image needs neither a compiler nor the gigabytes that are left out.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from e2e import lock, packages
from e2e.cache import REPOSITORY
from e2e.kernels import environment, stubs

STANDINS = REPOSITORY / "images" / "quantize" / "src"
OWN = environment.PROJECT / "src"
SOURCES = (STANDINS, OWN, Path(__file__), *(Path(__file__).with_name(name) for name in ("stubs.py", "elf.py")))
IMAGE_PYTHON = ("--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_34")

# Quantizing runs references alone; the tokenizer reads files, no hub. SciPy is for comparisons.
LEFT_OUT = ("triton", "setuptools", "scipy", "huggingface-hub", "hf-xet")
PRUNED = (
    "torch/include", "torch/test", "torch/share", "torch/testing/_internal/generated", "torch/lib/*.a",
    "*/tests", "bin",
)  # fmt: skip


def requirements() -> str:
    """What the image's packages are: pinned, with hashes."""
    lines = lock.export("--project", str(environment.PROJECT), "--no-dev", "--no-emit-project")
    for name in LEFT_OUT:
        try:
            lines = lines.replace(lock.entry(lines, name), "")
        except LookupError:
            continue  # nobody asks for it any more
    return lines


def fill(folder: Path, say: Callable[[str], None] = print) -> None:
    """Lay the packages out in the new folder `folder`; some 300 MB are fetched when uv's cache lacks them."""
    packages.install(environment.TOOLS, "Making torch independent of CUDA", say)
    folder.mkdir()
    wanted = folder.with_name("requirements.txt")
    wanted.write_text(requirements())
    command = [
        "uv",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--require-hashes",
        "--only-binary",
        ":all:",
        *IMAGE_PYTHON,
    ]
    # Copied, not linked: the stubs are ours, the installer's cache is not.
    command += ["--link-mode", "copy", "--target", str(folder), "--requirement", str(wanted)]
    environ = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    subprocess.run(command, cwd=environment.PROJECT, env=environ, check=True)
    wanted.unlink()
    stubs.remove_cuda(folder)
    for pattern in PRUNED:
        for path in folder.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for source in (STANDINS, OWN):
        shutil.copytree(source, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))

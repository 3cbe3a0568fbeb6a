"""The packages of the image `steelyard/vllm`: what `uv.lock` pins for pods, changed to run on processors alone, and made small.

They are laid out here and not in the image, so that the image needs neither a compiler nor the gigabytes that are left out.
Their place in the image is a folder on Python's path; bytecode is compiled there, by the Python that will read it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from e2e import lock, packages
from e2e.cache import REPOSITORY
from e2e.kernels import stubs
from e2e.vllm import environment

QUIET = REPOSITORY / "images" / "vllm" / "src"  # our plug-in, which keeps idle engines from spinning
SOURCES = (
    QUIET,
    Path(__file__),
    Path(environment.__file__),
    *(REPOSITORY / "e2e" / "kernels" / name for name in ("stubs.py", "elf.py")),
)
IMAGE_PYTHON = ("--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_34")

# No kernel of Triton's can run on a processor, and vLLM does without where the package is missing. Pictures are for other models.
LEFT_OUT = ("triton", "ninja", "opencv-python-headless")
PRUNED = (
    *("torch/include", "torch/test", "torch/share", "torch/bin/protoc*", "torch/lib/*.a"),
    *("nixl_ep_cu12", "nixl_cu12.scripts", "nixl_cu12.libs/ucx/libucx_perftest*"),
    *(".nixl_cu12.mesonpy.libs/plugins/libplugin_[!U]*.so", "nixl_cu12.libs/nixl/libplugin_[!U]*.so"),  # all but UCX
    *("lib/*sycl*", "lib/*libur_*", "lib/*level_zero*", "lib/libomptarget*", "lib/*.a", "lib/*.dbg"),  # beside OpenMP
    *("*/tests", "bin"),
)


def requirements() -> str:
    """What the image's packages are: pinned, with hashes."""
    lines = lock.export("--project", str(environment.PROJECT), "--no-default-groups", "--group", "image")
    for name in LEFT_OUT:
        lines = lines.replace(lock.entry(lines, name), "")
    return lines


def fill(folder: Path) -> None:
    """Lay the packages out in the new folder `folder`; some 500 MB are fetched when uv's cache lacks them."""
    packages.install(environment.TOOLS, "Making torch independent of CUDA", _say)
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
    # Copied, not linked: the stubs and the metadata are ours, the installer's cache is not.
    command += ["--link-mode", "copy", "--target", str(folder), "--requirement", str(wanted)]
    environ = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    subprocess.run(command, cwd=environment.PROJECT, env=environ, check=True)
    wanted.unlink()
    stubs.remove_cuda(folder)
    environment.add_metadata(folder)
    for pattern in PRUNED:
        for path in folder.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    # vLLM wants the system's libnuma, which a minimal image lacks: NIXL brings its own under another name.
    shutil.copy(next(folder.glob("nixl_cu12.libs/libnuma-*.so*")), folder / "lib" / "libnuma.so.1")
    shutil.copytree(QUIET, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)

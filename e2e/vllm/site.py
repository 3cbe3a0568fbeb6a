"""The packages of the image `steelyard/vllm`: what `uv.lock` pins for pods, changed to run on processors alone, and made small.

Their place in the image is a folder on Python's path; bytecode is compiled there, by the Python that will read it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from e2e import laid_out, lock
from e2e.cache import REPOSITORY
from e2e.vllm import environment

QUIET = REPOSITORY / "images" / "vllm" / "src"  # our plug-in, which keeps idle engines from spinning
SOURCES = (
    QUIET,
    Path(__file__),
    Path(laid_out.__file__),
    Path(environment.__file__),
    *(REPOSITORY / "e2e" / "kernels" / name for name in ("stubs.py", "elf.py")),
)

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
    """Lay the packages out in the new folder `folder`, with our own; some 500 MB are fetched when uv's cache lacks them."""
    laid_out.lay_out(folder, requirements(), environment.PROJECT, environment.TOOLS, PRUNED)
    environment.add_metadata(folder)
    # vLLM wants the system's libnuma, which a minimal image lacks: NIXL brings its own under another name.
    shutil.copy(next(folder.glob("nixl_cu12.libs/libnuma-*.so*")), folder / "lib" / "libnuma.so.1")
    laid_out.overlay(QUIET, folder)

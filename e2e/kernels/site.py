"""The packages of the image `steelyard/quantize`: what the kernels' `uv.lock` pins, for processors alone, made small."""

from __future__ import annotations

from pathlib import Path

from e2e import laid_out, lock
from e2e.cache import REPOSITORY
from e2e.kernels import environment

STANDINS = REPOSITORY / "images" / "quantize" / "src"
OWN = environment.PROJECT / "src"
SOURCES = (
    *(STANDINS, OWN, Path(__file__), Path(laid_out.__file__)),
    *(Path(__file__).with_name(name) for name in ("stubs.py", "elf.py")),
)

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


def fill(folder: Path) -> None:
    """Lay the packages out in the new folder `folder`, with our own; some 300 MB are fetched when uv's cache lacks them."""
    laid_out.lay_out(folder, requirements(), environment.PROJECT, environment.TOOLS, PRUNED)
    for source in (STANDINS, OWN):
        laid_out.overlay(source, folder)

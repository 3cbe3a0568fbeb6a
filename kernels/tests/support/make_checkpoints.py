"""`python tests/support/make_checkpoints.py FOLDER [--whole]`: SmolLM2 in every format that vLLM is to load.

The first two layers in each format, which is enough to compare layers; with --whole, all layers too, under the name `whole-FORMAT`.
"""

import argparse
import os
import tempfile
from dataclasses import replace
from pathlib import Path

from steelyard_kernels.model import gguf
from steelyard_kernels.quantize.recipe import PRESETS, of
from steelyard_kernels.quantize.run import Job, quantize

RECIPES = dict(PRESETS) | {
    "int4-gptq-ct": of({"weights": "int4-gptq", "layout": "compressed-tensors"}, "here"),
    "nvfp4-rotated": of({"weights": "nvfp4", "rotation": "hadamard"}, "here"),
}
LAYERS = 2


def main() -> None:
    """Make what is not there yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--whole", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        source, first = Path(scratch) / "smollm2", Path(scratch) / "first"
        checkpoint = gguf.read(Path(os.environ["STEELYARD_GGUF"]))
        gguf.write(checkpoint, source)
        gguf.write(first_layers(checkpoint, LAYERS), first)
        for name, recipe in RECIPES.items():
            small = replace(recipe, samples=4, tokens=64)
            _make(first, options.folder / name, small)
            if options.whole and name != "ternary":
                _make(source, options.folder / f"whole-{name}", replace(small, samples=8, tokens=128))


def first_layers(checkpoint: gguf.Checkpoint, count: int) -> gguf.Checkpoint:
    """A model of the first layers alone."""
    kept = {
        name: one
        for name, one in checkpoint.tensors.items()
        if ".layers." not in name or int(name.split(".")[2]) < count
    }
    return checkpoint._replace(config={**checkpoint.config, "num_hidden_layers": count}, tensors=kept)


def _make(source: Path, target: Path, recipe) -> None:
    if not target.exists():
        quantize(Job(source, target, recipe, judged=0))
        print(f"made {target}", flush=True)


if __name__ == "__main__":
    main()

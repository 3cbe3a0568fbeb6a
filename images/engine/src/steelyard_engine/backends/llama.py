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
from collections.abc import Mapping
from collections.abc import Sequence as Tokens
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import llama_cpp
import numpy as np

from ..sampling import Sampling, choose
from ..steps import Chunk, Free, Share, Shift, Window
from ..structure import Form
from . import StateRefused
from .adapters import Adapters, by_adapter
from .batch import Batch
from .cells import Cells
from .grammar import Grammar, Grammars

log = logging.getLogger(__name__)

Numerics = Literal["reproducible", "fast"]
KvType = Literal["f16", "q8_0", "q4_0"]
_KV_TYPES: dict[KvType, int] = {
    "f16": llama_cpp.GGML_TYPE_F16,
    "q8_0": llama_cpp.GGML_TYPE_Q8_0,
    "q4_0": llama_cpp.GGML_TYPE_Q4_0,
}
NO_ADAPTERS: Mapping[str, Path] = MappingProxyType({})
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
        kv_type: KvType = "f16",
        lora: Mapping[str, Path] = NO_ADAPTERS,
        window: Window | None = None,
    ) -> None:
        self._path = _find(model)
        self._context_length = context_length
        self._batch_tokens = batch_tokens
        self._threads = threads
        self._numerics = numerics
        self._kv_type = kv_type
        self._lora = lora
        self._window = window
        self._answers: dict[int, Grammar] = {}  # what the answers of running sequences are held to, by id
        self.kv_tokens = kv_tokens
        self.prefix_tokens = max(kv_tokens // _PREFIXES, min(context_length, kv_tokens))
        self.slots = min(slots, llama_cpp.llama_max_parallel_sequences() - _INNER_SLOTS)
        self.layout = f"llama.cpp {llama_cpp.__version__} {kv_type}"
        if window is not None:
            self.layout += f" {window.sink}+{window.recent}"
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
        if (self._window.size if self._window else self._context_length) > trained:
            told = "--recent" if self._window else f"--context-length {self._context_length}"
            raise ValueError(f"{told} is beyond the {trained} tokens the model knows")
        self._vocab = llama_cpp.llama_model_get_vocab(self._model)
        self._adapters = Adapters(self._model, self._lora)  # llama.cpp wants them before the context
        self._make_context()
        self._read_vocabulary()
        self._batch = Batch(self._batch_tokens)
        self._grammars = Grammars(self._vocab, self.end_tokens)
        self.model_id = _fingerprint(self._path)
        self._adapter_ids = {name: _fingerprint(path) for name, path in self._lora.items()}
        self._decode(1)
        self.cells.clear()

    def identity(self, adapter: str) -> str:
        """Return the digest of the weights, with an adapter's where there is one."""
        return f"{self.model_id}+{self._adapter_ids[adapter]}" if adapter else self.model_id

    def facts(self) -> dict[str, str]:
        """Return the model's size and the form of its weights as llama.cpp tells them, and the form of the KV cache."""
        text = ctypes.create_string_buffer(128)
        llama_cpp.llama_model_desc(self._model, text, len(text))
        return {"weights": text.value.decode(errors="replace"), "kv": self._kv_type}

    def tokenize(self, text: str, add_special: bool) -> list[int]:
        """Return the tokens of `text`; control tokens written in it count as such."""
        data = text.encode()
        tokens = (llama_cpp.llama_token * (len(data) + 8))()
        count = llama_cpp.llama_tokenize(self._vocab, data, len(data), tokens, len(tokens), add_special, True)
        return list(tokens[:count])

    def piece(self, token: int) -> bytes:
        """Return the bytes of a token; control tokens are empty."""
        return self._piece(token, special=False)

    def apply(self, operation: Free | Share | Shift) -> None:
        """Drop a slot's cells or some of them, or let another slot own the first of them too."""
        if isinstance(operation, Free):
            self.cells.bury(operation.slot)
        elif isinstance(operation, Shift):
            self.cells.shift(operation.slot, operation.start, operation.end)
        else:
            self.cells.share(operation.source, operation.slot, operation.tokens)

    def run(self, chunks: Tokens[Chunk], sampling: dict[int, Sampling], kv_use: float) -> dict[int, Tokens[int]]:
        """Decode all chunks, those of one adapter as one batch, and sample where asked; raise RuntimeError where llama.cpp
        refuses a batch.
        """
        self.cells.prepare({chunk.sequence.slot for chunk in chunks}, sum(chunk.size for chunk in chunks))
        sampled: dict[int, Tokens[int]] = {}
        for adapter, group in by_adapter(chunks):
            self._adapters.use(self._context, adapter)
            rows = self._batch.fill(group)
            self._decode(self._batch.native.n_tokens)
            for chunk in group:
                self.cells.added(chunk.sequence.slot, chunk.size)
            for row, chunk in rows.items():
                sampled[chunk.sequence.id] = found = self._sample(row, chunk, sampling[chunk.sequence.id])
                self.cells.cut(chunk.sequence.slot, chunk.end + len(found) - 1)
        return sampled

    def cut(self, slot: int, tokens: int) -> None:
        """Keep only the first `tokens` tokens of a slot."""
        self.cells.cut(slot, tokens)

    def end(self, sequence: int) -> None:
        """Forget what is kept for sampling a sequence's answer."""
        self._answers.pop(sequence, None)

    def grammar(self, form: Form) -> str:
        """Write a form as a grammar; raise ValueError where it cannot be followed."""
        return self._grammars.write(form)

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

    def _sample(self, row: int, chunk: Chunk, sampling: Sampling) -> list[int]:
        """Return what is sampled behind the chunk and behind each of its guesses, as far as these were right."""
        sequence = chunk.sequence
        grammar = self._answers.get(sequence.id)
        if grammar is None and sampling.grammar is not None:
            grammar = self._answers[sequence.id] = self._grammars.begin(sampling.grammar)
        found: list[int] = []
        while True:
            place = row + len(found)
            logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(self._context, place), (self.vocabulary,))
            token = choose(logits, sampling, sequence.generated + len(found), self.end_tokens, grammar)
            if grammar is not None:
                grammar.accept(token)
            found.append(token)
            if len(found) > len(chunk.guesses) or chunk.guesses[len(found) - 1] != token:
                return found

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
        parameters.type_k = parameters.type_v = _KV_TYPES[self._kv_type]
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

    def _decode(self, size: int) -> None:
        self._batch.native.n_tokens = size
        status = llama_cpp.llama_decode(self._context, self._batch.native)
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

"""What the engine asks of a model: the protocol that `llama` and `simulated` keep.

A backend is used by one thread only, after `load`; `tokenize`, `render` and `piece` may be called from others too.
"""

from collections.abc import Sequence as Tokens
from typing import Protocol

from ..sampling import Sampling
from ..steps import Chunk, Free, Share, Shift
from ..structure import Form


class StateRefused(Exception):
    """A transferred state does not fit this model or cannot be loaded; the prompt must be computed here."""


class Backend(Protocol):
    """A model with a KV cache of `slots` sequences."""

    model_id: str  # digest of the weights; equal ids mean that state can be exchanged
    layout: str  # type and version of the state's bytes
    chat_template: str
    special: dict[str, str]  # bos_token and eos_token, for the template
    end_tokens: frozenset[int]
    kv_tokens: int
    prefix_tokens: int  # of these, how many may hold what nobody uses at present, for reuse
    slots: int
    vocabulary: int  # token ids are 0 to this, exclusive
    default_answer: int | None  # tokens of a chat answer without a limit; None: the rest of the context

    def load(self) -> None:
        """Load the model and run it once; raise ValueError or OSError where that is impossible."""
        ...

    def identity(self, adapter: str) -> str:
        """Return the digest of what computes keys and values: the weights, and an adapter's where it is not ""."""
        ...

    def facts(self) -> dict[str, str]:
        """Return what is worth telling of the loaded model: the form of its `weights` and of its `kv` cache."""
        ...

    def grammar(self, form: Form) -> str:
        """Write the form that an answer must have as the `Sampling`'s grammar; raise ValueError where that cannot be."""
        ...

    def tokenize(self, text: str, add_special: bool) -> list[int]:
        """Return the tokens of `text`; control tokens written in it count as such, as in vLLM."""
        ...

    def piece(self, token: int) -> bytes:
        """Return the bytes of an answer's token; control tokens are empty."""
        ...

    def apply(self, operation: Free | Share | Shift) -> None:
        """Change the KV cache."""
        ...

    def run(self, chunks: Tokens[Chunk], sampling: dict[int, Sampling], kv_use: float) -> dict[int, Tokens[int]]:
        """Compute one batch; return for each sequence (by id) whose chunk asks for it the tokens sampled: its guesses as
        far as they are what is sampled in their place, and one more. Of the other guesses no KV is left.
        """
        ...

    def end(self, sequence: int) -> None:
        """Forget what is kept for sampling a sequence's answer, by its id; it is over."""
        ...

    def export_state(self, slot: int, tokens: int) -> bytes:
        """Return the KV of the first `tokens` tokens in `slot` as bytes."""
        ...

    def import_state(self, slot: int, tokens: int, state: memoryview) -> None:
        """Load an exported state of `tokens` tokens into an empty `slot`; raise StateRefused where it cannot be."""
        ...

    def state_bytes(self, tokens: int, state: memoryview) -> int:
        """Return the bytes that count as transferred for this state (a simulated one is larger than what travels)."""
        ...

    def transfer_seconds(self, tokens: int) -> float:
        """Return how long the transfer must take at least; 0 for a real one."""
        ...

    def close(self) -> None:
        """Free the model."""
        ...

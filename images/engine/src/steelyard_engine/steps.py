"""What the scheduler, its batching strategies and the backends speak of: sequences, and the steps that compute them."""

from dataclasses import dataclass, field
from typing import Literal

from .kv import extend_keys

Batching = Literal["continuous", "chunked", "static", "dynamic"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes of the engine: running sequences, tokens of a step, KV in tokens, slots (KV owners), seconds to wait, and how
    much of the KV may be kept for reuse while nobody uses it (None: all).
    """

    max_sequences: int
    max_batch_tokens: int
    kv_tokens: int
    slots: int
    batching: Batching = "chunked"
    max_wait: float = 0.05
    prefix_tokens: int | None = None


@dataclass(slots=True, eq=False)
class Sequence:
    """One request inside the scheduler; only the scheduler changes it."""

    id: int
    prompt: tuple[int, ...]
    max_tokens: int
    arrival: float
    transferred: int = 0  # leading prompt tokens whose state comes from another engine
    tokens: list[int] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    computed: int = 0
    cached: int = 0  # prompt tokens found in the prefix cache at first admission
    slot: int = -1
    registered: int = 0  # blocks that others may find in the prefix cache
    started: float | None = None  # time of first admission

    def __post_init__(self) -> None:
        self.tokens = list(self.prompt)
        extend_keys(self.keys, self.tokens)

    @property
    def generated(self) -> int:
        """Tokens sampled so far."""
        return len(self.tokens) - len(self.prompt)

    @property
    def pending(self) -> int:
        """Tokens that must be run before the next one can be sampled."""
        return len(self.tokens) - self.computed


@dataclass(frozen=True, slots=True)
class Free:
    """Drop the KV of `slot`."""

    slot: int


@dataclass(frozen=True, slots=True)
class Share:
    """Let `slot` hold the first `tokens` tokens of `source` too."""

    source: int
    slot: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Restore:
    """Load the transferred state of a sequence into its slot."""

    sequence: Sequence


Operation = Free | Share | Restore


@dataclass(frozen=True, slots=True)
class Chunk:
    """Run `tokens[start:end]` of a sequence; sample the next token after it where `sample`."""

    sequence: Sequence
    start: int
    end: int
    sample: bool

    @property
    def is_decode(self) -> bool:
        """Say whether this is one token of a running answer, not a piece of a prompt."""
        return self.end - self.start == 1 and self.sample and self.start > 0


@dataclass(frozen=True, slots=True)
class Step:
    """Operations in order, then chunks as one batch; `kv_use` is the share of KV in use, 0 to 1."""

    operations: tuple[Operation, ...]
    chunks: tuple[Chunk, ...]
    kv_use: float


def piece(sequence: Sequence, budget: int) -> Chunk:
    """The next tokens of a sequence, as many as the budget allows; the last of them is sampled after."""
    end = min(sequence.computed + budget, len(sequence.tokens))
    return Chunk(sequence, sequence.computed, end, end == len(sequence.tokens))

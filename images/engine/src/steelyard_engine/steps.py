"""What the scheduler, its batching strategies and the backends speak of: sequences, and the steps that compute them."""

from dataclasses import dataclass, field
from typing import Literal

from .kv import extend_keys

Batching = Literal["continuous", "chunked", "static", "dynamic"]


@dataclass(frozen=True, slots=True)
class Window:
    """What a sequence keeps of its KV (StreamingLLM, Xiao et al., 2024): its first `sink` tokens and at most `recent` of the
    latest. Positions are places in the cache, not in the text: what is left moves up.

    Forgetting happens when the window is full, a quarter of the latest at once, so that it depends on nothing but the text.
    """

    sink: int
    recent: int

    @property
    def size(self) -> int:
        """Tokens that a sequence has in the cache at most."""
        return self.sink + self.recent

    @property
    def stride(self) -> int:
        """Tokens that are forgotten at once."""
        return max(1, self.recent // 4)


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes of the engine: running sequences, tokens of a step, KV in tokens, slots (KV owners), seconds to wait, and how
    much of the KV may be kept for reuse while nobody uses it (None: all). A `window` bounds what one sequence keeps.
    """

    max_sequences: int
    max_batch_tokens: int
    kv_tokens: int
    slots: int
    batching: Batching = "chunked"
    max_wait: float = 0.05
    prefix_tokens: int | None = None
    window: "Window | None" = None


@dataclass(slots=True, eq=False)
class Sequence:
    """One request inside the scheduler; only the scheduler changes it."""

    id: int
    prompt: tuple[int, ...]
    max_tokens: int
    arrival: float
    transferred: int = 0  # leading prompt tokens whose state comes from another engine
    adapter: str = ""  # whose keys and values these are; "": the model's own
    tokens: list[int] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    computed: int = 0
    cached: int = 0  # prompt tokens found in the prefix cache at first admission
    slot: int = -1
    registered: int = 0  # blocks that others may find in the prefix cache
    started: float | None = None  # time of first admission
    window: Window | None = None  # where the whole text does not fit into it; then its KV is shared with nobody
    forgotten: list[int] = field(default_factory=list)  # what stood in `tokens` behind the window's sink

    def __post_init__(self) -> None:
        self.tokens = list(self.prompt)

    def extend_keys(self) -> None:
        """Compute the keys of the blocks that have become full; adapters share none with each other."""
        if self.window is None:
            extend_keys(self.keys, self.tokens, self.adapter.encode())

    def forget(self, count: int) -> None:
        """Take `count` tokens behind the window's sink out of `tokens`, whose places are those in the cache."""
        assert self.window is not None
        sink = self.window.sink
        self.forgotten += self.tokens[sink : sink + count]
        del self.tokens[sink : sink + count]

    def remember(self) -> None:
        """Put back what was forgotten: it is to be computed anew."""
        if self.window is not None:
            self.tokens[self.window.sink : self.window.sink] = self.forgotten
            self.forgotten.clear()

    @property
    def generated(self) -> int:
        """Tokens sampled so far."""
        return len(self.tokens) + len(self.forgotten) - len(self.prompt)

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
class Shift:
    """Drop the KV of the tokens from `start` to `end` of `slot`; what follows moves up to their places."""

    slot: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Restore:
    """Load the transferred state of a sequence into its slot."""

    sequence: Sequence


Operation = Free | Share | Shift | Restore


@dataclass(frozen=True, slots=True)
class Chunk:
    """Run `tokens[start:end]` of a sequence; sample the next token after it where `sample`.

    `guesses` are run behind them, to be kept as far as they are what would have been sampled there (speculative decoding).
    """

    sequence: Sequence
    start: int
    end: int
    sample: bool
    guesses: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """Tokens that this runs."""
        return self.end - self.start + len(self.guesses)

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

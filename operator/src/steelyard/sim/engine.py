"""What one replica's engine takes for each pass: the simulator's only physics.

    prefill pass of n new tokens        a + b·n + c·n²
    decode step of batch n at KV use u  g0 + g1·u + g2·u² + g3·n       u = (KV tokens + half a block a sequence) / capacity
    a pass that does both               the sum of the two
    moving a context of n tokens        base + n·per token

All in seconds. The coefficients are those of a simulated engine's profile (docs/design/interfaces.md); measured tables and
rooflines are brought into the same form. Some engines' measured steps have two regimes: `wide` holds from `wide_from`
sequences on.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from steelyard.decide.profile import Profile

Quadratic = tuple[float, float, float]
StepTerms = tuple[float, float, float, float]


class Batching(StrEnum):
    """How an engine forms its passes; the words of `spec.batching.strategy`."""

    CHUNKED = "chunked"  # prompts may be cut; prompts and decodes share a pass
    CONTINUOUS = "continuous"  # whole prompts first, decodes wait for them
    STATIC = "static"  # a batch is formed while nothing runs, and finished before the next
    DYNAMIC = "dynamic"  # as static, but waits up to `max_wait` for the batch to fill


@dataclass(frozen=True, slots=True)
class Engine:
    """One replica's figures. Raises ValueError, naming the field, where they cannot be."""

    prefill: Quadratic
    decode: StepTerms
    kv_tokens: int
    batch_tokens: int = 8192
    max_sequences: int = 256
    block_tokens: int = 16
    transfer: tuple[float, float] = (0.0, 0.0)
    batching: Batching = Batching.CHUNKED
    max_wait_seconds: float = 0.05
    wide: StepTerms | None = None
    wide_from: int = 0
    answers_at_prefill: bool = False
    """Whether the prefill replica's own token is the client's first, as in DistServe; else the first decode step's is."""

    def __post_init__(self) -> None:
        """Refuse figures under which time would stand still or run backwards."""
        for name in ("kv_tokens", "batch_tokens", "max_sequences", "block_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"engine.{name} is {getattr(self, name)}; it must be at least 1")
        if min(self.prefill) < 0 or self.prefill[0] + self.prefill[1] <= 0:
            raise ValueError(f"engine.prefill is {self.prefill}; a, b, c must not be negative, nor a and b both zero")
        for name, terms in (("decode", self.decode), ("wide", self.wide)):
            if terms is not None and min(terms[0] + terms[3], self._step(terms, 1.0, 1)) <= 0:
                raise ValueError(f"engine.{name} is {terms}; a step must take time at KV use 0 and at 1")
        if min(self.transfer) < 0:
            raise ValueError(f"engine.transfer is {self.transfer}; it must not be negative")

    @classmethod
    def of(cls, profile: Profile, *, batch_tokens: int = 8192, max_sequences: int = 256, **further: object) -> Self:
        """Take a simulated engine's profile."""
        per_token = profile.bytes_per_token / profile.transfer_bytes_per_second
        return cls(
            prefill=profile.prefill,
            decode=profile.decode,
            kv_tokens=profile.kv_tokens,
            batch_tokens=batch_tokens,
            max_sequences=max_sequences,
            transfer=(0.0, per_token),
            **further,  # type: ignore[arg-type]
        )

    def prefill_seconds(self, tokens: float) -> float:
        """Seconds of one pass of `tokens` new tokens."""
        a, b, c = self.prefill
        return a + b * tokens + c * tokens * tokens

    def prompt_seconds(self, tokens: int) -> float:
        """Seconds of one prompt that has the replica to itself, in passes of at most `batch_tokens`."""
        whole, rest = divmod(tokens, self.batch_tokens)
        return whole * self.prefill_seconds(self.batch_tokens) + (self.prefill_seconds(rest) if rest else 0.0)

    def terms(self, sequences: int) -> StepTerms:
        """Coefficients of a step with so many sequences."""
        return self.wide if self.wide is not None and sequences >= self.wide_from else self.decode

    def step_seconds(self, sequences: int, kv_tokens: float) -> float:
        """Seconds of one decode step."""
        use = (kv_tokens + sequences * self.block_tokens / 2) / self.kv_tokens
        return self._step(self.terms(sequences), use, sequences)

    def transfer_seconds(self, tokens: int) -> float:
        """Seconds to move a context between replicas."""
        base, per_token = self.transfer
        return base + per_token * tokens

    def slots(self, context: float, tpot_seconds: float | None) -> int:
        """The most sequences of mean context `context` whose step meets the objective, within KV and limits; at least 1."""
        least, most = 1, self.max_sequences
        while least < most:
            middle = (least + most + 1) // 2
            fits = middle * (context + self.block_tokens / 2) <= self.kv_tokens
            if fits and (tpot_seconds is None or self.step_seconds(middle, middle * context) <= tpot_seconds):
                least = middle
            else:
                most = middle - 1
        return least

    def peak_prefill_rate(self) -> float:
        """The most new tokens per second that prefill can do, at the best pass size within `batch_tokens`."""
        sizes = range(max(1, self.batch_tokens // 32), self.batch_tokens + 1, max(1, self.batch_tokens // 32))
        return max(size / self.prefill_seconds(size) for size in sizes)

    @staticmethod
    def _step(terms: StepTerms, use: float, sequences: int) -> float:
        g0, g1, g2, g3 = terms
        return g0 + g1 * use + g2 * use * use + g3 * sequences

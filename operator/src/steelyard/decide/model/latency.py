"""How long an engine's steps take, behind one small interface; the autoscaler, the simulator and the planner share it.

Times in seconds, sizes in tokens and bytes, a context in tokens of KV that one sequence holds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class LatencyModel(Protocol):
    """What one replica takes."""

    @property
    def kv_bytes_per_token(self) -> float:
        """Bytes of KV that one token of context holds, over all accelerators of the replica."""

    def prefill_seconds(self, batch: Sequence[float]) -> float:
        """Seconds of one pass that reads prompts of these many new tokens together; 0 for an empty batch."""

    def decode_step_seconds(self, batch: float, context: float) -> float:
        """Seconds in which each of `batch` sequences of mean context `context` gets its next token."""

    def transfer_seconds(self, tokens: float) -> float:
        """Seconds in which the KV of that many tokens reaches another replica."""


@dataclass(frozen=True, slots=True)
class Polynomial:
    """A measured engine, or a prior in the same form: the schema of a simulated engine's profile.

    One prefill pass of n new tokens in all takes a + b·n + c·n² seconds. A decode step of batch n whose KV fills the
    share u of `kv_tokens` takes g0 + g1·u + g2·u² + g3·n seconds; u counts up to 1.
    """

    prefill: tuple[float, float, float]  # a, b, c
    decode: tuple[float, float, float, float]  # g0, g1, g2, g3
    kv_tokens: float  # KV capacity of one replica
    kv_bytes_per_token: float = 0.0
    transfer_bytes_per_second: float = float("inf")

    def prefill_seconds(self, batch: Sequence[float]) -> float:
        """Evaluate a + b·n + c·n² for all new tokens of the pass."""
        tokens = sum(batch)
        a, b, c = self.prefill
        return a + b * tokens + c * tokens * tokens if batch else 0.0

    def decode_step_seconds(self, batch: float, context: float) -> float:
        """Evaluate g0 + g1·u + g2·u² + g3·n."""
        use = min(1.0, batch * context / self.kv_tokens)
        g0, g1, g2, g3 = self.decode
        return g0 + g1 * use + g2 * use * use + g3 * batch

    def transfer_seconds(self, tokens: float) -> float:
        """Divide the bytes of the tokens' KV by the rate of the link."""
        return tokens * self.kv_bytes_per_token / self.transfer_bytes_per_second

"""What one pass of a model does: operations and bytes, counted from its shape and formats.

    linear      2 · weights that a token passes, each token; the output matrix once a sequence
    attention   heads · 2 (key + value) for each pair of a query and a key that it sees; a prompt sees half of itself
    weights     read once a pass: dense ones, and of experts those that some token of the batch chose
    KV          read once a step, of each sequence what its layers keep (a window's worth, a latent, a fixed state)

Operations on weights are kept apart from those of attention, since they may run in different formats.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from steelyard.catalog import formats
from steelyard.catalog.shapes import Shape
from steelyard.decide.model.layout import Layout

EDGE_BYTES = 2.0  # embedding and output matrix stay in 16 bits
STATE_BYTES = 2.0  # of a value of a linear layer's state


@dataclass(frozen=True, slots=True)
class Work:
    """A model in its formats; bytes of one value."""

    shape: Shape
    dense_bytes: float = 2.0  # of a weight that every token passes
    expert_bytes: float = 2.0  # of a weight of a routed expert
    kv_bytes: float = 2.0  # of a cached key or value

    @property
    def stored(self) -> float:
        """Bytes of all weights."""
        experts = self.shape.experts.total * self.expert_bytes if self.shape.experts else 0.0
        return self.shape.edges * EDGE_BYTES + self.shape.dense * self.dense_bytes + experts

    @property
    def kv_bytes_per_token(self) -> float:
        """Bytes of KV of one token that lies inside every window."""
        return self.shape.kv_values * self.kv_bytes

    def linear(self, tokens: float, sequences: float) -> float:
        """Operations with weights, of a pass of so many tokens that answers so many sequences."""
        return 2.0 * self.shape.active * tokens + 2.0 * self.shape.embedding * sequences

    def prefill_attention(self, batch: Sequence[float]) -> float:
        """Operations of attention of prompts of these many tokens."""
        found = 0.0
        for group in self.shape.attention:
            pairs = sum(group.held(n) * (n - group.held(n) / 2) for n in batch)  # n²/2 without a window
            found += group.layers * (group.prefill_pair * pairs + group.state_operations * sum(batch))
        return found

    def decode_attention(self, batch: float, context: float) -> float:
        """Operations of attention of one step."""
        each = sum(g.layers * (g.decode_pair * g.held(context) + g.state_operations) for g in self.shape.attention)
        return batch * each

    def dense_read(self) -> float:
        """Bytes of the weights that every pass reads."""
        return self.shape.dense * self.dense_bytes + self.shape.embedding * EDGE_BYTES

    def experts_read(self, touched: float) -> float:
        """Bytes of experts that a pass reads which touches so many of each layer."""
        experts = self.shape.experts
        return experts.layers * touched * experts.weights * self.expert_bytes if experts else 0.0

    def touched(self, tokens: float) -> float:
        """Experts of a layer that a pass of so many tokens is expected to read."""
        return self.shape.experts.touched(tokens) if self.shape.experts else 0.0

    def kv_read(self, context: float, layout: Layout) -> float:
        """Bytes that one accelerator of a stage reads for a sequence it serves, as if it had all stages' layers."""
        found = 0.0
        for g in self.shape.attention:
            kept = g.kv_values * g.held(context) * self.kv_bytes + g.state * STATE_BYTES
            found += g.layers * kept / layout.kv_ways(g)
        return found


def work(shape: Shape, weights: str = "none", kv: str = "none") -> Work:
    """Take a model in a format of weights and one of KV, both named as in `catalog/formats.toml`."""
    stored, cached = formats.WEIGHTS[weights], formats.KV[kv]
    packed = stored.width(shape.hidden) / 8
    head = max((group.key for group in shape.attention), default=1)
    return Work(
        shape=shape,
        dense_bytes=2.0 if stored.experts_only and shape.experts else packed,
        expert_bytes=packed,
        kv_bytes=cached.width(head) / 8,
    )

"""H2O (arXiv 2306.14048): the tokens that received the most attention so far, and the most recent ones.

A token's score is the sum, over all queries since it came, of the probability they gave it: s_k = Σ_q p(q, k). After each step each
head keeps its `recent` last tokens and the `heavy` best of the others. Under grouped-query attention a key is shared, so scores are
summed over the query heads of its group (the paper has no groups). A fused attention kernel never has the probabilities; it needs
`attention.column_sums`, a second pass. Written from the paper's equations.
"""

from __future__ import annotations

import torch
from torch import Tensor

from steelyard_kernels.kv.cache import PlainCache


class HeavyCache(PlainCache):
    """Heavy hitters and a window."""

    def __init__(self, heavy: int, recent: int) -> None:
        super().__init__()
        if heavy < 0 or recent < 1:
            raise ValueError(f"heavy is {heavy} and recent {recent}; heavy must be at least 0 and recent at least 1")
        self.heavy, self.recent = heavy, recent
        self.scores = torch.zeros(0)

    def settle(self, probabilities: Tensor) -> None:
        """Add the step's probabilities to the scores, then keep the best."""
        heads = self.keys.shape[0]
        received = probabilities.unflatten(0, (heads, -1)).sum((1, 2))
        if len(self.scores):
            received[:, : self.scores.shape[1]] += self.scores
        self.scores = received
        count = received.shape[1]
        if count <= self.heavy + self.recent:
            return
        best = received[:, : count - self.recent].topk(self.heavy, dim=1).indices.sort(dim=1).values
        window = torch.arange(count - self.recent, count).expand(heads, -1)
        kept = torch.cat([best, window], 1)
        self.keep(kept)
        self.scores = received.gather(1, kept)

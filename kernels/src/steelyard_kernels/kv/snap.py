"""SnapKV (arXiv 2404.14469): compress the prompt once, by what its last queries look at.

The probabilities of the prompt's last `window` queries are summed for each earlier key and smoothed along the tokens with average
pooling, so that a chosen token brings its neighbours; a head keeps the best `capacity − window` of them and the window. Tokens
generated later are all kept. Two conventions for grouped-query attention:
`per_query_head=False` averages the scores of the query heads that share a key (as kvpress does), and memory shrinks as asked;
`per_query_head=True` chooses for every query head, as the published code does after repeating the keys, and so stores each key
once a query head: choices are finer and memory is (query heads / key heads) times larger.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from steelyard_kernels.kv.cache import PlainCache


class SnapCache(PlainCache):
    """A compressed prompt, then everything."""

    def __init__(self, capacity: int = 320, window: int = 64, kernel: int = 5, per_query_head: bool = False) -> None:
        super().__init__()
        if not 0 < window < capacity:
            raise ValueError(f"window is {window} and capacity {capacity}; the window must be smaller and at least 1")
        if kernel % 2 == 0:
            raise ValueError(f"kernel is {kernel}; only an odd width is centred on its token")
        self.capacity, self.window, self.kernel, self.per_query_head = capacity, window, kernel, per_query_head
        self.compressed = False

    def settle(self, probabilities: Tensor) -> None:
        """After the first step, which is the prompt, keep `capacity` tokens of it."""
        if self.compressed:
            return
        self.compressed = True
        count, heads = probabilities.shape[-1], self.keys.shape[0]
        if self.per_query_head:
            repeat = probabilities.shape[0] // heads
            heads = probabilities.shape[0]
            self.keys, self.values = self.keys.repeat_interleave(repeat, 0), self.values.repeat_interleave(repeat, 0)
        if count <= self.capacity:
            return
        kept = choose_prompt_tokens(probabilities, heads, self.capacity, self.window, self.kernel)
        self.keep(kept)

    def _extended(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        if self.keys.numel() and self.keys.shape[0] != keys.shape[0]:
            repeat = self.keys.shape[0] // keys.shape[0]
            keys, values = keys.repeat_interleave(repeat, 0), values.repeat_interleave(repeat, 0)
        return super()._extended(keys, values)


def choose_prompt_tokens(probabilities: Tensor, heads: int, capacity: int, window: int, kernel: int) -> Tensor:
    """Indices [heads, capacity], ascending, from the prompt's probabilities [query heads, tokens, tokens]."""
    count = probabilities.shape[-1]
    prefix = probabilities[:, -window:, : count - window].sum(1).unflatten(0, (heads, -1)).mean(1)
    smooth = F.avg_pool1d(prefix.unsqueeze(1), kernel, stride=1, padding=kernel // 2).squeeze(1)
    best = smooth.topk(capacity - window, dim=1).indices.sort(dim=1).values
    return torch.cat([best, torch.arange(count - window, count).expand(heads, -1)], 1)

"""StreamingLLM (arXiv 2309.17453): the first tokens, which attention uses as a sink, and the most recent ones.

After each step the cache keeps the `sinks` first tokens and the `recent` last ones, so memory is constant over an endless stream.
Positions are places inside the cache, not in the text: the keys are stored without rotary position and turned when read, or the
model would soon see distances it was not trained for. Defaults are those of the published code; the paper's figures use 4 + 1020.
"""

from __future__ import annotations

import torch
from torch import Tensor

from steelyard_kernels.kv.cache import PlainCache


class StreamingCache(PlainCache):
    """Sinks and a window."""

    rotates_at_read = True

    def __init__(self, sinks: int = 4, recent: int = 512) -> None:
        super().__init__()
        if sinks < 0 or recent < 1:
            raise ValueError(f"sinks is {sinks} and recent {recent}; sinks must be at least 0 and recent at least 1")
        self.sinks, self.recent = sinks, recent

    def settle(self, probabilities: Tensor) -> None:
        """Drop the tokens between the sinks and the window."""
        count = probabilities.shape[-1]
        if count > self.sinks + self.recent:
            self.keep(torch.cat([torch.arange(self.sinks), torch.arange(count - self.recent, count)]))

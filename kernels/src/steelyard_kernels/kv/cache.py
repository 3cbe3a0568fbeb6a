"""What attention asks of a cache of keys and values, and the cache that keeps everything.

A cache holds one layer of one sequence. A step first calls `extend` with the new tokens' keys and values and attends to what it
returns; then it calls `settle` with the probabilities it computed, and the cache may drop or compress. So the new tokens always see
each other as they are, and every policy is the two methods. Tensors are [heads, tokens, width of a head]; tokens stay in order,
the new ones last.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor


class Cache(ABC):
    """Keys and values of the tokens seen so far, as far as the policy keeps them."""

    rotates_at_read: ClassVar[bool] = False
    """Whether keys are stored without rotary position and turned, when read, to their place inside the cache."""

    def __init__(self) -> None:
        self.seen = 0  # tokens, kept or not: the position of the next one

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Take the new tokens in; returns all keys and values to attend to, the new tokens' exactly as given."""
        self.seen += keys.shape[1]
        return self._extended(keys, values)

    @abstractmethod
    def _extended(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]: ...

    @abstractmethod
    def settle(self, probabilities: Tensor) -> None:
        """End the step: `probabilities` [query heads, new tokens, keys] are those over what `extend` returned."""

    @abstractmethod
    def bytes(self) -> int:
        """What is stored after the step, scales and zeros included."""


class PlainCache(Cache):
    """Keeps keys and values in the type they come in; policies that drop tokens build on it."""

    def __init__(self) -> None:
        super().__init__()
        self.keys = self.values = torch.empty(0)

    def _extended(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        if self.keys.numel():
            keys, values = torch.cat([self.keys, keys], 1), torch.cat([self.values, values], 1)
        self.keys, self.values = keys, values
        return keys, values

    def keep(self, tokens: Tensor) -> None:
        """Drop all but the tokens with these indices: [kept] for all heads, or [heads, kept], ascending."""
        heads, _, width = self.keys.shape
        index = tokens.expand(heads, -1).unsqueeze(-1).expand(-1, -1, width)
        self.keys, self.values = self.keys.gather(1, index), self.values.gather(1, index)

    def bytes(self) -> int:
        """Bytes of keys and values."""
        return self.keys.nbytes + self.values.nbytes


class WholeCache(PlainCache):
    """Drops nothing."""

    def settle(self, probabilities: Tensor) -> None:
        """Nothing to do."""

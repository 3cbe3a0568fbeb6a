"""KIVI (arXiv 2402.02750): 2- or 4-bit keys by channel and values by token, with a window of recent tokens left as they are.

A few channels of the keys are far larger than the rest, for every token: so keys are grouped along tokens, one channel at a time.
Values have no such channels and are read one token at a time: so they are grouped along channels. Codes are packed in int32, keys
along tokens and values along channels. A group of keys needs its tokens together, so keys leave the window `residual` at a time,
and values one by one. Keys are stored after rotation. Defaults are those of the published code.
"""

from __future__ import annotations

import torch
from torch import Tensor

from steelyard_kernels.kv import affine
from steelyard_kernels.kv.affine import Packed
from steelyard_kernels.kv.cache import Cache


class KiviCache(Cache):
    """Packed keys [heads, width, tokens] and values [heads, tokens, width], and the window [heads, tokens, width]."""

    def __init__(self, bits: int = 2, group: int = 32, residual: int = 128) -> None:
        super().__init__()
        if bits not in (2, 4, 8):
            raise ValueError(f"bits is {bits}; codes fill words with 2, 4 or 8 bits")
        if residual % group:
            raise ValueError(
                f"residual is {residual}; keys leave the window in whole groups, so it must be a multiple of {group}"
            )
        self.bits, self.group, self.residual = bits, group, residual
        self.packed_keys: Packed | None = None
        self.packed_values: Packed | None = None
        self.recent_keys = self.recent_values = torch.empty(0)

    def _extended(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        self.recent_keys = _after(self.recent_keys, keys)
        self.recent_values = _after(self.recent_values, values)
        all_keys, all_values = self.recent_keys, self.recent_values
        if self.packed_keys is not None:
            all_keys = torch.cat([self.packed_keys.dequantize().transpose(1, 2).to(keys.dtype), all_keys], 1)
        if self.packed_values is not None:
            all_values = torch.cat([self.packed_values.dequantize().to(values.dtype), all_values], 1)
        return all_keys, all_values

    def settle(self, probabilities: Tensor) -> None:
        """Pack the keys that fill whole residuals, and all but the last `residual` values."""
        full = self.recent_keys.shape[1] // self.residual * self.residual
        if full:
            leaving = affine.quantize(self.recent_keys[:, :full].transpose(1, 2), self.bits, self.group)
            self.packed_keys = _appended(self.packed_keys, leaving, axis=2)
            self.recent_keys = self.recent_keys[:, full:]
        over = self.recent_values.shape[1] - self.residual
        if over > 0:
            leaving = affine.quantize(self.recent_values[:, :over], self.bits, self.group)
            self.packed_values = _appended(self.packed_values, leaving, axis=1)
            self.recent_values = self.recent_values[:, over:]

    def bytes(self) -> int:
        """Codes, scales, lows and the window."""
        packed = sum(part.nbytes() for part in (self.packed_keys, self.packed_values) if part is not None)
        return packed + self.recent_keys.nbytes + self.recent_values.nbytes


def _after(old: Tensor, new: Tensor) -> Tensor:
    return torch.cat([old, new], 1) if old.numel() else new


def _appended(old: Packed | None, new: Packed, axis: int) -> Packed:
    return new if old is None else affine.joined([old, new], axis)

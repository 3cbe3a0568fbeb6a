"""Asymmetric integer groups of a cache: x ≈ code · scale + low, with scale and low kept in few bits.

    low = min x,  scale = (max x − min x) / (2^b − 1),  code = round((x − low) / scale)
over groups along the last axis. Scale and low are rounded to their type first and the codes follow from those, so storing them
costs no further error. A constant group has scale 0; its codes are 0, where the published code of KIVI divides by zero.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from steelyard_kernels.quant.groups import pack, unpack


class Packed(NamedTuple):
    """Words int32 [..., n·bits/32], scale and low fp16 or fp32 [..., n/group]."""

    words: Tensor
    scale: Tensor
    low: Tensor
    bits: int

    def dequantize(self) -> Tensor:
        """Values [..., n] float32."""
        groups = unpack(self.words, self.bits).float().unflatten(-1, (self.scale.shape[-1], -1))
        return (groups * self.scale.float().unsqueeze(-1) + self.low.float().unsqueeze(-1)).flatten(-2)

    def nbytes(self) -> int:
        """Bytes of codes, scales and lows."""
        return self.words.nbytes + self.scale.nbytes + self.low.nbytes


def quantize(values: Tensor, bits: int, group: int, scales: torch.dtype = torch.float16) -> Packed:
    """Pack values [..., n] in groups of `group` along n; `scales` is the type of scale and low."""
    if values.shape[-1] % group:
        raise ValueError(f"group is {group}, which does not divide {values.shape[-1]} values; choose a divisor")
    groups = values.float().unflatten(-1, (-1, group))
    low = groups.amin(-1).to(scales)
    scale = ((groups.amax(-1) - low.float()) / (2**bits - 1)).clamp(min=0).to(scales)
    step = scale.float().unsqueeze(-1)
    codes = ((groups - low.float().unsqueeze(-1)) / step.where(step > 0, torch.inf)).round().clamp(0, 2**bits - 1)
    return Packed(pack(codes.to(torch.int32).flatten(-2), bits), scale, low, bits)


def joined(parts: list[Packed], axis: int) -> Packed:
    """Several packs of the same bits, one after another along an axis of words, scales and lows."""
    words, scale, low, bits = zip(*parts, strict=True)
    return Packed(torch.cat(words, axis), torch.cat(scale, axis), torch.cat(low, axis), bits[0])

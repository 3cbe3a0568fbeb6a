"""Integers by round-to-nearest, one scale a group of inputs: the simplest quantizer, and the codes of GPTQ and AWQ.

A weight [outputs, inputs] is cut along its inputs into groups of `group` values. For b bits, with levels 0 … 2^b − 1,
    symmetric:   scale = max|w| / ((2^b − 1) / 2),  zero = 2^(b−1)
    asymmetric:  scale = (max(w, 0) − min(w, 0)) / (2^b − 1),  zero = round(−min / scale)
    code = clamp(round(w / scale) + zero, 0, 2^b − 1),   w ≈ (code − zero) · scale
with ties to the even code. The error is at most half a scale, except that a symmetric group's largest positive value, half a step
above the last level, is off by exactly half. These are the conventions of compressed-tensors and AutoAWQ; packing puts 32/b codes
into an int32, the first in the lowest bits. A file keeps scales in 16 bits: they are rounded to that type (`kept`) before codes are
chosen, for a code of the exact scale may not be the nearest one of the scale that is kept.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from steelyard_kernels.backend import uses_triton
from steelyard_kernels.rounding import round_even

SMALLEST_SCALE = 2.0**-24  # a group of zeros must not divide by zero, also in fp16, whose least number this is


class Groups(NamedTuple):
    """Codes [outputs, inputs] uint8, and scale and zero [outputs, inputs/group] float32."""

    codes: Tensor
    scale: Tensor
    zero: Tensor
    bits: int

    def dequantize(self) -> Tensor:
        """The weight these codes stand for, [outputs, inputs] float32."""
        groups = self.codes.float().unflatten(-1, (self.scale.shape[-1], -1))
        return ((groups - self.zero.unsqueeze(-1)) * self.scale.unsqueeze(-1)).flatten(-2)


def group_range(values: Tensor, bits: int, symmetric: bool, kept: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Scale, a number of type `kept`, and zero, both [...] and in the values' type, of groups of values [..., group]."""
    levels = 2**bits - 1
    if symmetric:
        scale = (values.abs().amax(-1) / (levels / 2)).clamp(min=SMALLEST_SCALE).to(kept).to(values.dtype)
        return scale, torch.full_like(scale, 2 ** (bits - 1))
    low, high = values.amin(-1).clamp(max=0), values.amax(-1).clamp(min=0)
    scale = ((high - low) / levels).clamp(min=SMALLEST_SCALE).to(kept).to(values.dtype)
    return scale, (-low / scale).round().clamp(0, levels)


def quantize_groups_ref(
    weight: Tensor, bits: int, group: int, symmetric: bool = True, kept: torch.dtype = torch.float32
) -> Groups:
    """Round a weight [outputs, inputs] to the nearest codes of its groups, whose scales are numbers of type `kept`."""
    _check(weight, bits, group)
    values = weight.float().unflatten(-1, (-1, group))
    scale, zero = group_range(values, bits, symmetric, kept)
    codes = ((values / scale.unsqueeze(-1)).round() + zero.unsqueeze(-1)).clamp(0, 2**bits - 1)
    return Groups(codes.to(torch.uint8).flatten(-2), scale, zero, bits)


def pack(codes: Tensor, bits: int) -> Tensor:
    """Codes [..., n] → int32 [..., n·bits/32], the first code in the lowest bits."""
    each = 32 // bits
    if 32 % bits or codes.shape[-1] % each:
        raise ValueError(
            f"{codes.shape[-1]} codes of {bits} bits do not fill words of 32; pad, or use 1, 2, 4, 8 or 16 bits"
        )
    shifts = torch.arange(each, device=codes.device) * bits
    words = (codes.to(torch.int64).unflatten(-1, (-1, each)) << shifts).sum(-1)
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def unpack(words: Tensor, bits: int) -> Tensor:
    """The inverse of `pack`: int32 [..., n] → [..., n·32/bits], bytes or, for 16 bits, int32."""
    shifts = torch.arange(32 // bits, device=words.device, dtype=torch.int32) * bits
    codes = ((words.unsqueeze(-1) >> shifts) & (2**bits - 1)).flatten(-2)
    return codes if bits > 8 else codes.to(torch.uint8)


@triton.jit
def _quantize_kernel(
    weight, codes, scale, zero, outputs, inputs,
    GROUP: tl.constexpr, LEVELS: tl.constexpr, SYMMETRIC: tl.constexpr, SMALLEST: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """One program: one group of ROWS rows."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    block = tl.program_id(1)
    inside = row < outputs
    at = row.to(tl.int64)[:, None] * inputs + block * GROUP + tl.arange(0, GROUP)[None, :]
    values = tl.load(weight + at, mask=inside[:, None], other=0.0).to(tl.float32)
    if SYMMETRIC:
        step = tl.maximum(tl.div_rn(tl.max(tl.abs(values), axis=1), LEVELS / 2), SMALLEST)
        middle = tl.zeros_like(step) + (LEVELS + 1) / 2
    else:
        low = tl.minimum(tl.min(values, axis=1), 0.0)
        high = tl.maximum(tl.max(values, axis=1), 0.0)
        step = tl.maximum(tl.div_rn(high - low, LEVELS * 1.0), SMALLEST)
        middle = tl.minimum(round_even(tl.div_rn(-low, step)), LEVELS * 1.0)
    code = round_even(tl.div_rn(values, tl.broadcast_to(step[:, None], values.shape))) + middle[:, None]
    code = tl.minimum(tl.maximum(code, 0.0), LEVELS * 1.0)
    tl.store(codes + at, code.to(tl.uint8), mask=inside[:, None])
    groups = inputs // GROUP
    tl.store(scale + row * groups + block, step, mask=inside)
    tl.store(zero + row * groups + block, middle, mask=inside)


def _quantize_triton(weight: Tensor, bits: int, group: int, symmetric: bool) -> Groups:
    outputs, inputs = weight.shape
    weight = weight.contiguous()
    codes = torch.empty(outputs, inputs, dtype=torch.uint8, device=weight.device)
    scale = torch.empty(outputs, inputs // group, dtype=torch.float32, device=weight.device)
    zero = torch.empty_like(scale)
    grid = (triton.cdiv(outputs, 32), inputs // group)
    _quantize_kernel[grid](
        weight, codes, scale, zero, outputs, inputs,
        GROUP=group, LEVELS=2**bits - 1, SYMMETRIC=symmetric, SMALLEST=SMALLEST_SCALE, ROWS=32,
    )  # fmt: skip
    return Groups(codes, scale, zero, bits)


def quantize_groups(
    weight: Tensor, bits: int, group: int, symmetric: bool = True, kept: torch.dtype = torch.float32
) -> Groups:
    """`quantize_groups_ref`, or its kernel on a GPU when `group` is a power of two and scales are kept in fp32."""
    _check(weight, bits, group)
    if uses_triton(weight) and group & (group - 1) == 0 and kept == torch.float32:
        return _quantize_triton(weight, bits, group, symmetric)
    return quantize_groups_ref(weight, bits, group, symmetric, kept)


def _check(weight: Tensor, bits: int, group: int) -> None:
    if not 1 <= bits <= 8:
        raise ValueError(f"bits is {bits}; codes are bytes, so it must be between 1 and 8")
    if group < 1 or weight.shape[-1] % group:
        raise ValueError(
            f"group is {group}, which does not divide the weight's {weight.shape[-1]} inputs; choose a divisor"
        )

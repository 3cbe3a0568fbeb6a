"""Joins attention over parts of the keys into attention over all of them.

A part gives its result o_i, the values weighted by its own softmax, and the logarithm of its softmax's denominator, lse_i. Then
    lse = ln Σ e^(lse_i),   o = Σ e^(lse_i − lse) · o_i
exactly (FlashDecoding; arXiv 1805.02867 for the online form). A part without keys has lse −∞ and weighs nothing; when no part has
keys the result is zero.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from steelyard_kernels.backend import uses_triton


def merge_ref(outputs: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
    """outputs [parts, rows, d] and lse [parts, rows] → [rows, d] and [rows]."""
    total = lse.logsumexp(0)
    weights = (lse - total.where(total > -torch.inf, 0)).exp()
    return (weights.unsqueeze(-1) * outputs).sum(0), total


@triton.jit
def _merge_kernel(outputs, lse, out, out_lse, parts, rows, width, PARTS: tl.constexpr, LANES: tl.constexpr):
    """One program: one row."""
    row = tl.program_id(0).to(tl.int64)
    part, lane = tl.arange(0, PARTS), tl.arange(0, LANES)
    inside = (part < parts)[:, None] & (lane < width)[None, :]
    part_lse = tl.load(lse + part * rows + row, mask=part < parts, other=float("-inf"))
    largest = tl.max(part_lse, axis=0)
    base = tl.where(largest == float("-inf"), 0.0, largest)
    weight = tl.exp(part_lse - base)
    total = tl.sum(weight, axis=0)
    value = tl.load(outputs + (part[:, None] * rows + row) * width + lane[None, :], mask=inside, other=0.0)
    divisor = tl.where(total == 0.0, 1.0, total)
    merged = tl.sum(value * weight[:, None], axis=0) / divisor
    tl.store(out + row * width + lane, merged, mask=lane < width)
    tl.store(out_lse + row, tl.where(total == 0.0, float("-inf"), tl.log(divisor) + base))


def merge(outputs: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
    """`merge_ref`, or its kernel on a GPU; fp32."""
    if not uses_triton(outputs) or outputs.dtype != torch.float32:
        return merge_ref(outputs, lse)
    parts, rows, width = outputs.shape
    out, out_lse = torch.empty_like(outputs[0]), torch.empty_like(lse[0])
    _merge_kernel[(rows,)](
        outputs.contiguous(), lse.contiguous(), out, out_lse, parts, rows, width,
        PARTS=triton.next_power_of_2(parts), LANES=triton.next_power_of_2(width),
    )  # fmt: skip
    return out, out_lse

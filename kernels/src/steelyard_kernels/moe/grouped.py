"""The product of many experts at once: rows sorted by expert, each expert's rows times its own weight.

    out[r] = x[r] · W[e(r)]ᵀ,   rows of expert e being offsets[e] … offsets[e + 1] − 1
The kernel cuts the rows into tiles within one expert (the last of each is partly empty), so that a program reads one weight.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from steelyard_kernels.backend import uses_triton

TILE = 16


class Sorted(NamedTuple):
    """Rows sorted by expert: x [rows, width], each row's token and choice [rows], and how many rows each expert has [experts]."""

    x: Tensor
    token: Tensor
    choice: Tensor
    counts: Tensor


def permute(x: Tensor, experts: Tensor, count: int, keep: Tensor | None = None) -> Sorted:
    """x [tokens, width] once for each of its experts [tokens, k] that `keep` [tokens, k] does not drop, sorted by expert."""
    k = experts.shape[1]
    flat = experts.flatten()
    order = flat.argsort(stable=True)
    if keep is not None:
        order = order[keep.flatten()[order]]
    counts = torch.bincount(flat[order], minlength=count)
    token = order // k
    return Sorted(x[token], token, order % k, counts)


def unpermute(rows: Tensor, placed: Sorted, weights: Tensor) -> Tensor:
    """Each token's sum of its rows times their weights [tokens, k] → [tokens, width]."""
    out = torch.zeros(weights.shape[0], rows.shape[1], dtype=rows.dtype, device=rows.device)
    return out.index_add_(0, placed.token, rows * weights[placed.token, placed.choice, None].to(rows.dtype))


def grouped_matmul_ref(x: Tensor, weights: Tensor, counts: Tensor) -> Tensor:
    """x [rows, inputs], weights [experts, outputs, inputs], counts [experts] → [rows, outputs], in fp32, in x's type."""
    parts = x.float().split(counts.tolist())
    return torch.cat([part @ weight.float().T for part, weight in zip(parts, weights, strict=True)]).to(x.dtype)


@triton.jit
def _grouped_matmul_kernel(
    x, weights, tile_expert, tile_first, tile_end, out, inputs, outputs,
    ROWS: tl.constexpr, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr,
):  # fmt: skip
    """One program: one tile of an expert's rows × OUTPUTS results."""
    tile = tl.program_id(0)
    expert = tl.load(tile_expert + tile).to(tl.int64)
    row = tl.load(tile_first + tile).to(tl.int64) + tl.arange(0, ROWS)
    inside = (row < tl.load(tile_end + tile))[:, None]
    output = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
    lane = tl.arange(0, INPUTS)
    total = tl.zeros((ROWS, OUTPUTS), dtype=tl.float32)
    for start in range(0, inputs, INPUTS):
        k = start + lane
        there = (k < inputs)[None, :]
        left = tl.load(x + row[:, None] * inputs + k[None, :], mask=inside & there, other=0.0)
        at = (expert * outputs + output[:, None]) * inputs + k[None, :]
        right = tl.load(weights + at, mask=(output < outputs)[:, None] & there, other=0.0)
        total = tl.dot(left, tl.trans(right.to(left.dtype)), total, input_precision="ieee")
    place = row[:, None] * outputs + output[None, :]
    tl.store(out + place, total.to(out.dtype.element_ty), mask=inside & (output < outputs)[None, :])


def tiles(counts: Tensor, size: int = TILE) -> tuple[Tensor, Tensor, Tensor]:
    """For each tile its expert, first row, and the end of the expert's rows, int32."""
    ends = counts.cumsum(0)
    each = (counts + size - 1) // size
    expert = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), each)
    within = torch.arange(len(expert), device=counts.device) - (each.cumsum(0) - each)[expert]
    first = (ends - counts)[expert] + within * size
    return expert.to(torch.int32), first.to(torch.int32), ends[expert].to(torch.int32)


def grouped_matmul(x: Tensor, weights: Tensor, counts: Tensor) -> Tensor:
    """`grouped_matmul_ref`, or its kernel on a GPU."""
    rows, inputs = x.shape
    if int(counts.sum()) != rows or weights.shape[0] != len(counts) or weights.shape[2] != inputs:
        raise ValueError(
            f"x is {list(x.shape)}, weights {list(weights.shape)} and counts sum to {int(counts.sum())}; "
            "rows must be those counted, and inputs equal"
        )
    if not uses_triton(x) or rows == 0:
        return grouped_matmul_ref(x, weights, counts)
    out = torch.empty(rows, weights.shape[1], dtype=x.dtype, device=x.device)
    expert, first, end = tiles(counts)
    _grouped_matmul_kernel[len(expert), triton.cdiv(weights.shape[1], 64)](
        x.contiguous(), weights.contiguous(), expert, first, end, out, inputs, weights.shape[1],
        ROWS=TILE, OUTPUTS=64, INPUTS=64,
    )  # fmt: skip
    return out

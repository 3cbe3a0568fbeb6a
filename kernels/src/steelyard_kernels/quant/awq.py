"""AWQ (arXiv 2306.00978): scale up the inputs that matter before rounding, and clip the weights' extremes.

    s* = argmin_s ‖ (Q(W·diag s)·diag(s)⁻¹ − W)·X ‖²,   s = mean|X|^α / √(max·min of it),   α ∈ {0, 1/20, …, 19/20}
Linears that read the same input (q, k, v; gate, up) share s; its inverse folds into the norm or linear before, so inference costs
nothing. Then each group of each row tries smaller ranges, down to half, and keeps the one with the least output error. Do not clip
q and k: their products go through a softmax, which this error does not describe.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from steelyard_kernels.quant.groups import Groups, group_range, quantize_groups_ref

STEPS = 20
LEAST_RANGE = 0.5


def search_scale(
    weights: Sequence[Tensor], magnitude: Tensor, hessian: Tensor, bits: int, group: int, symmetric: bool = True
) -> Tensor:
    """s [inputs] for weights [outputs, inputs] of one input with mean|x| `magnitude` [inputs] and H = X·Xᵀ [inputs, inputs]."""
    best, best_error, hessian = torch.ones_like(magnitude), float("inf"), hessian.float()
    for step in range(STEPS):
        scale = magnitude.clamp(min=1e-4) ** (step / STEPS)
        scale = scale / (scale.max() * scale.min()).sqrt()
        rounded = [
            quantize_groups_ref(weight * scale, bits, group, symmetric).dequantize() / scale for weight in weights
        ]
        differences = [weight - one for weight, one in zip(weights, rounded, strict=True)]
        # In fp32, which tells candidates apart and takes half the time of fp64.
        error = sum(((part @ hessian) * part).sum().item() for part in differences)
        if error < best_error:
            best, best_error = scale, error
    return best


def quantize_clipped(
    weight: Tensor, hessian: Tensor, bits: int, group: int, symmetric: bool = True, kept: torch.dtype = torch.float32
) -> Groups:
    """Codes with the best of `STEPS/2` ranges for each group of each row, by the group's own output error (wᵀ·H_g·w)."""
    values = weight.float().unflatten(-1, (-1, group))
    blocks = torch.stack([hessian[i : i + group, i : i + group] for i in range(0, len(hessian), group)]).float()
    best = torch.full(values.shape[:-1], float("inf"))
    codes = torch.zeros_like(values)
    scale, zero = group_range(values, bits, symmetric, kept)
    for step in range(int(STEPS * LEAST_RANGE)):
        limit = values.abs().amax(-1, keepdim=True) * (1 - step / STEPS)
        one_scale, one_zero = group_range(values.clamp(-limit, limit), bits, symmetric, kept)
        one = ((values / one_scale.unsqueeze(-1)).round() + one_zero.unsqueeze(-1)).clamp(0, 2**bits - 1)
        difference = (one - one_zero.unsqueeze(-1)) * one_scale.unsqueeze(-1) - values
        error = torch.einsum("ogi,gij,ogj->og", difference, blocks, difference)
        better = error < best
        best = torch.where(better, error, best)
        codes = torch.where(better.unsqueeze(-1), one, codes)
        scale, zero = torch.where(better, one_scale, scale), torch.where(better, one_zero, zero)
    return Groups(codes.to(torch.uint8).flatten(-2), scale, zero, bits)

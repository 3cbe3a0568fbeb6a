"""GPTQ (arXiv 2210.17323): round one input column at a time and let the columns not yet rounded make up for the error.

With H = X·Xᵀ of the layer's inputs, damped by a share of its mean diagonal, and U the upper Cholesky factor of H⁻¹:
    for column i:  q = round(w_i),  e = (w_i − q) / U_ii,  w_j −= e · U_ij for all j > i
which is least squares over the inputs seen. Columns are updated within blocks of 128 and the rest of the matrix once a block, as
the paper does for speed; the result is the same. `by_activation` takes columns by descending diagonal of H, the ones that matter
most first; group scales are then fixed beforehand from the original weight (static groups), so that the stored weight needs no
permutation. An input that was always zero has H_ii = 0: its weights become zero.
"""

from __future__ import annotations

import torch
from torch import Tensor

from steelyard_kernels.quant.groups import Groups, group_range

BLOCK = 128


def quantize_gptq(
    weight: Tensor,
    hessian: Tensor,
    bits: int,
    group: int,
    symmetric: bool = True,
    by_activation: bool = False,
    damping: float = 0.01,
) -> Groups:
    """Codes of a weight [outputs, inputs], given H [inputs, inputs] (any multiple of X·Xᵀ)."""
    outputs, inputs = weight.shape
    if inputs % group:
        raise ValueError(f"group is {group}, which does not divide the weight's {inputs} inputs; choose a divisor")
    if hessian.shape != (inputs, inputs):
        raise ValueError(f"the Hessian is {list(hessian.shape)}; for {inputs} inputs it must be [{inputs}, {inputs}]")
    w, h = weight.double(), hessian.double()
    if not torch.isfinite(h).all() or not torch.isfinite(w).all():
        raise ValueError(
            "the weight or the Hessian has values that are not finite; look at the calibration's activations"
        )
    dead = h.diagonal() == 0
    w = w.masked_fill(dead, 0.0)
    h = h + torch.diag(dead.double())
    order = h.diagonal().argsort(descending=True, stable=True) if by_activation else torch.arange(inputs)
    factor = _inverse_factor(h[order][:, order], damping)
    scale, zero = group_range(w.unflatten(-1, (-1, group)), bits, symmetric)
    w, codes = w[:, order].contiguous(), torch.empty(outputs, inputs, dtype=torch.uint8)
    for start in range(0, inputs, BLOCK):
        end = min(start + BLOCK, inputs)
        errors = torch.empty(outputs, end - start, dtype=torch.float64)
        for i in range(start, end):
            column = int(order[i])
            if not by_activation and i % group == 0:
                pending = (
                    errors[:, : i - start] @ factor[start:i, i : i + group]
                )  # in a later block, none of it is applied yet
                block = w[:, i : i + group].clone()
                block[:, end - i :] -= pending[:, end - i :]
                scale[:, i // group], zero[:, i // group] = group_range(block, bits, symmetric)
            step, middle = scale[:, column // group], zero[:, column // group]
            code = ((w[:, i] / step).round() + middle).clamp(0, 2**bits - 1)
            codes[:, column] = code.to(torch.uint8)
            error = (w[:, i] - (code - middle) * step) / factor[i, i]
            w[:, i + 1 : end] -= error[:, None] * factor[i, i + 1 : end]
            errors[:, i - start] = error
        w[:, end:] -= errors @ factor[start:end, end:]
    return Groups(codes, scale.float(), zero.float(), bits)


def _inverse_factor(hessian: Tensor, damping: float) -> Tensor:
    damped = hessian + torch.eye(len(hessian), dtype=hessian.dtype) * damping * hessian.diagonal().mean()
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(damped))
    return torch.linalg.cholesky(inverse, upper=True)


def output_error(original: Tensor, quantized: Tensor, hessian: Tensor) -> float:
    """‖(W − Ŵ)·X‖² for H = X·Xᵀ: what GPTQ and AWQ reduce."""
    difference = (original - quantized).double()
    return ((difference @ hessian.double()) * difference).sum().item()

"""GPTQ (arXiv 2210.17323): round one input column at a time and let the columns not yet rounded make up for the error.

With H = X·Xᵀ of the layer's inputs, damped by a share of its mean diagonal, and U the upper Cholesky factor of H⁻¹:
    for column i:  q = round(w_i),  e = (w_i − q) / U_ii,  w_j −= e · U_ij for all j > i
which is least squares over the inputs seen. Columns are updated within blocks of 128 and the rest of the matrix once a block, as
the paper does for speed; the result is the same. `by_activation` takes columns by descending diagonal of H, the ones that matter
most first; group scales are then fixed beforehand from the original weight (static groups), so that the stored weight needs no
permutation. An input that was always zero has H_ii = 0: its weights become zero. Any rounding serves: integers of groups, or FP8.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from steelyard_kernels.quant.fp8 import LARGEST, SMALLEST_SCALE, Fp8
from steelyard_kernels.quant.groups import Groups, group_range

BLOCK = 128
Upcoming = Callable[[int], Tensor]


def quantize_gptq(
    weight: Tensor,
    hessian: Tensor,
    bits: int,
    group: int,
    symmetric: bool = True,
    by_activation: bool = False,
    damping: float = 0.01,
    kept: torch.dtype = torch.float32,
) -> Groups:
    """Codes of a weight [outputs, inputs], given H [inputs, inputs] (any multiple of X·Xᵀ); scales are numbers of type `kept`."""
    outputs, inputs = weight.shape
    if inputs % group:
        raise ValueError(f"group is {group}, which does not divide the weight's {inputs} inputs; choose a divisor")
    w, factor, order = _prepared(weight, hessian, by_activation, damping)
    scale, zero = group_range(w.unflatten(-1, (-1, group)), bits, symmetric, kept)
    codes = torch.empty(outputs, inputs, dtype=torch.uint8)

    def rounded(i: int, column: Tensor, upcoming: Upcoming) -> Tensor:
        place = int(order[i])
        if not by_activation and i % group == 0:
            scale[:, i // group], zero[:, i // group] = group_range(upcoming(group), bits, symmetric, kept)
        step, middle = scale[:, place // group], zero[:, place // group]
        code = ((column / step).round() + middle).clamp(0, 2**bits - 1)
        codes[:, place] = code.to(torch.uint8)
        return (code - middle) * step

    _walk(w[:, order].contiguous(), factor, rounded)
    return Groups(codes, scale.float(), zero.float(), bits)


def quantize_gptq_fp8(weight: Tensor, hessian: Tensor, damping: float = 0.01) -> Fp8:
    """e4m3 codes with a scale a row, max|w| / 448, the most active columns first; given H [inputs, inputs] as above."""
    w, factor, order = _prepared(weight, hessian, True, damping)
    scale = (w.abs().amax(1) / LARGEST).clamp(min=SMALLEST_SCALE).bfloat16().double()  # as a file keeps it
    codes = torch.empty(weight.shape, dtype=torch.float8_e4m3fn)

    def rounded(i: int, column: Tensor, upcoming: Upcoming) -> Tensor:
        code = (column / scale).clamp(-LARGEST, LARGEST).float().to(torch.float8_e4m3fn)
        codes[:, int(order[i])] = code
        return code.double() * scale

    _walk(w[:, order].contiguous(), factor, rounded)
    return Fp8(codes, scale.float().unsqueeze(1), 1, weight.shape[1])


def _prepared(weight: Tensor, hessian: Tensor, by_activation: bool, damping: float) -> tuple[Tensor, Tensor, Tensor]:
    """The weight in fp64 without inputs that never came, U of the ordered H, and the order of its columns."""
    inputs = weight.shape[1]
    if hessian.shape != (inputs, inputs):
        raise ValueError(f"the Hessian is {list(hessian.shape)}; for {inputs} inputs it must be [{inputs}, {inputs}]")
    w, h = weight.double(), hessian.double()
    if not torch.isfinite(h).all() or not torch.isfinite(w).all():
        raise ValueError(
            "the weight or the Hessian has values that are not finite; look at the calibration's activations"
        )
    dead = h.diagonal() == 0
    h = h + torch.diag(dead.double())
    order = h.diagonal().argsort(descending=True, stable=True) if by_activation else torch.arange(inputs)
    return w.masked_fill(dead, 0.0), _inverse_factor(h[order][:, order], damping), order


def _walk(w: Tensor, factor: Tensor, rounded: Callable[[int, Tensor, Upcoming], Tensor]) -> None:
    """Let `rounded(i, column, upcoming)` say what each column of w becomes, those before it made up for; w is used up.

    `upcoming(n)` is what the n columns from i on are by now.
    """
    outputs, inputs = w.shape
    for start in range(0, inputs, BLOCK):
        end = min(start + BLOCK, inputs)
        errors = torch.empty(outputs, end - start, dtype=w.dtype)
        for i in range(start, end):

            def upcoming(count: int, i: int = i, start: int = start, end: int = end, errors: Tensor = errors) -> Tensor:
                block = w[:, i : i + count].clone()
                pending = (
                    errors[:, : i - start] @ factor[start:i, i : i + count]
                )  # in a later block, none is applied yet
                block[:, end - i :] -= pending[:, end - i :]
                return block

            error = (w[:, i] - rounded(i, w[:, i], upcoming)) / factor[i, i]
            w[:, i + 1 : end] -= error[:, None] * factor[i, i + 1 : end]
            errors[:, i - start] = error
        w[:, end:] -= errors @ factor[start:end, end:]


def _inverse_factor(hessian: Tensor, damping: float) -> Tensor:
    damped = hessian + torch.eye(len(hessian), dtype=hessian.dtype) * damping * hessian.diagonal().mean()
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(damped))
    return torch.linalg.cholesky(inverse, upper=True)


def output_error(original: Tensor, quantized: Tensor, hessian: Tensor) -> float:
    """‖(W − Ŵ)·X‖² for H = X·Xᵀ: what GPTQ and AWQ reduce."""
    difference = (original - quantized).double()
    return ((difference @ hessian.double()) * difference).sum().item()

"""Matrix product of fp8 activations and fp8 weights: y = x · Wᵀ with the scales applied to fp32 sums.

    y[m, n] = Σ_k-block (Σ_k∈block x₈[m, k] · W₈[n, k]) · s_x[m, block] · s_W[n, block]
Any pairing of `quant.fp8`'s scales works: a scale's index is its row or input divided by the tile it covers. Sums inside a block of
128 inputs are exact enough in the matrix unit; across blocks they are kept in fp32, as DeepSeek-V3 does.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from steelyard_kernels.backend import uses_triton
from steelyard_kernels.quant.fp8 import Fp8

BLOCK = 128


def fp8_matmul_ref(x: Fp8, weight: Fp8) -> Tensor:
    """x [rows, inputs], weight [outputs, inputs] → [rows, outputs] float32."""
    return x.dequantize() @ weight.dequantize().T


@triton.jit
def _fp8_matmul_kernel(
    x, weight, x_scale, weight_scale, out, rows, outputs, inputs, x_tall, x_wide, x_groups, w_tall, w_wide, w_groups,
    ROWS: tl.constexpr, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr,
):  # fmt: skip
    """One program: ROWS × OUTPUTS results. A tile of scales is `tall` rows by `wide` inputs, `groups` of them a row."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    output = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
    left_row, right_row = row.to(tl.int64)[:, None], output.to(tl.int64)[:, None]
    lane = tl.arange(0, INPUTS)
    total = tl.zeros((ROWS, OUTPUTS), dtype=tl.float32)
    for start in range(0, inputs, INPUTS):
        k = start + lane
        there = (k < inputs)[None, :]
        left = tl.load(x + left_row * inputs + k[None, :], mask=(row < rows)[:, None] & there, other=0.0)
        right = tl.load(weight + right_row * inputs + k[None, :], mask=(output < outputs)[:, None] & there, other=0.0)
        part = tl.dot(left, tl.trans(right))
        left_scale = tl.load(x_scale + (row // x_tall) * x_groups + start // x_wide, mask=row < rows, other=0.0)
        right_scale = tl.load(
            weight_scale + (output // w_tall) * w_groups + start // w_wide, mask=output < outputs, other=0.0
        )
        total += part * left_scale[:, None] * right_scale[None, :]
    at = row.to(tl.int64)[:, None] * outputs + output[None, :]
    tl.store(out + at, total, mask=(row < rows)[:, None] & (output < outputs)[None, :])


def fp8_matmul(x: Fp8, weight: Fp8) -> Tensor:
    """`fp8_matmul_ref`, or its kernel on a GPU; scales along the inputs must cover whole blocks of 128, or all of them."""
    (rows, inputs), outputs = x.codes.shape, weight.codes.shape[0]
    if weight.codes.shape[1] != inputs:
        raise ValueError(f"x has {inputs} inputs and the weight {weight.codes.shape[1]}; they must be equal")
    if not uses_triton(x.codes):
        return fp8_matmul_ref(x, weight)
    for name, part in (("x", x), ("weight", weight)):
        if part.wide % BLOCK and part.wide != inputs:
            raise ValueError(
                f"{name}'s scales cover {part.wide} inputs; they must cover a multiple of {BLOCK} or all {inputs}"
            )
    tiles = [size for part in (x, weight) for size in (part.tall, part.wide, part.scale.shape[1])]
    out = torch.empty(rows, outputs, dtype=torch.float32, device=x.codes.device)
    block_rows = min(64, max(16, triton.next_power_of_2(rows)))
    _fp8_matmul_kernel[triton.cdiv(rows, block_rows), triton.cdiv(outputs, 64)](
        x.codes.contiguous(), weight.codes.contiguous(), x.scale.contiguous(), weight.scale.contiguous(), out,
        rows, outputs, inputs, *tiles, ROWS=block_rows, OUTPUTS=64, INPUTS=BLOCK,
    )  # fmt: skip
    return out

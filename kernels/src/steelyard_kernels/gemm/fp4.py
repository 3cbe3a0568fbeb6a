"""Matrix product with NVFP4 or MXFP4 weights, unpacked in registers: y = x · Wᵀ, W ≈ e2m1 · block scale; sums in fp32.

The value of code c is arithmetic, no table: with e = (c >> 1) & 3 and m = c & 1 it is m/2 for e = 0 and 2^(e−1)·(1 + m/2)
otherwise.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from steelyard_kernels.backend import uses_triton
from steelyard_kernels.quant.fp4 import Fp4


def fp4_matmul_ref(x: Tensor, weight: Fp4) -> Tensor:
    """x [rows, inputs] → [rows, outputs], in x's type."""
    return (x.float() @ weight.dequantize().T).to(x.dtype)


@triton.jit
def _fp4_matmul_kernel(
    x, packed, scale, out, rows, outputs, inputs,
    GROUP: tl.constexpr, ROWS: tl.constexpr, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr,
):  # fmt: skip
    """One program: ROWS × OUTPUTS results. `scale` [outputs, inputs/GROUP] is fp32, the global scale in it."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    output = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
    there = (output < outputs)[:, None]
    lane = tl.arange(0, INPUTS)
    total = tl.zeros((ROWS, OUTPUTS), dtype=tl.float32)
    for start in range(0, inputs, INPUTS):
        k = start + lane
        inside = (k < inputs)[None, :]
        left = tl.load(
            x + row.to(tl.int64)[:, None] * inputs + k[None, :], mask=(row < rows)[:, None] & inside, other=0.0
        )
        byte = tl.load(
            packed + output.to(tl.int64)[:, None] * (inputs // 2) + (k // 2)[None, :], mask=there & inside, other=0
        )
        code = (byte.to(tl.int32) >> (4 * (k % 2))[None, :]) & 15
        exponent, half = (code >> 1) & 3, (code & 1).to(tl.float32) * 0.5
        size = tl.where(exponent == 0, half, (1.0 + half) * tl.exp2(exponent.to(tl.float32) - 1.0))
        value = tl.where(code > 7, -size, size)
        place = output.to(tl.int64)[:, None] * (inputs // GROUP) + (k // GROUP)[None, :]
        step = tl.load(scale + place, mask=there & inside, other=0.0)
        total = tl.dot(left, tl.trans((value * step).to(left.dtype)), total, input_precision="ieee")
    at = row.to(tl.int64)[:, None] * outputs + output[None, :]
    tl.store(out + at, total.to(out.dtype.element_ty), mask=(row < rows)[:, None] & (output < outputs)[None, :])


def fp4_matmul(x: Tensor, weight: Fp4) -> Tensor:
    """`fp4_matmul_ref`, or its kernel on a GPU."""
    rows, inputs = x.shape
    outputs = weight.packed.shape[0]
    if weight.packed.shape[1] * 2 != inputs:
        raise ValueError(f"x has {inputs} inputs and the weight {weight.packed.shape[1] * 2}; they must be equal")
    if not uses_triton(x):
        return fp4_matmul_ref(x, weight)
    out = torch.empty(rows, outputs, dtype=x.dtype, device=x.device)
    block_rows = min(64, max(16, triton.next_power_of_2(rows)))
    _fp4_matmul_kernel[triton.cdiv(rows, block_rows), triton.cdiv(outputs, 64)](
        x.contiguous(), weight.packed.contiguous(), weight.block_scale().contiguous(), out, rows, outputs, inputs,
        GROUP=inputs // weight.scale.shape[1], ROWS=block_rows, OUTPUTS=64, INPUTS=64,
    )  # fmt: skip
    return out

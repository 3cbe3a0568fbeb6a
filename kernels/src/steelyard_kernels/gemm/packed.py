"""Matrix product with a weight that is read packed: y = x · Wᵀ, W ≈ (code − zero) · scale (weight-only W2/W4/W8, activations kept).

x is [rows, inputs]; the weight is int32 [outputs, inputs·bits/32] as `quant.groups.pack` makes it, with scale and zero
[outputs, inputs/group]. In decode the weight's bytes are the cost, so codes are unpacked in registers, never in memory. A block of
inputs is one group: its scale is one number a row. Sums are kept in fp32. The packing is compressed-tensors' `pack-quantized`
(code + 8 for symmetric 4 bits).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from steelyard_kernels.backend import uses_triton
from steelyard_kernels.quant.groups import Groups, unpack


def packed_matmul_ref(x: Tensor, packed: Tensor, scale: Tensor, zero: Tensor, bits: int) -> Tensor:
    """Dequantize, then multiply in fp32; the result has x's type, [rows, outputs]."""
    weight = Groups(unpack(packed, bits), scale.float(), zero.float(), bits).dequantize()
    return (x.float() @ weight.T).to(x.dtype)


@triton.jit
def _packed_matmul_kernel(
    x, packed, scale, zero, out, rows, outputs, inputs,
    BITS: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, OUTPUTS: tl.constexpr,
):  # fmt: skip
    """One program: ROWS × OUTPUTS results, walking over the groups of inputs."""
    each: tl.constexpr = 32 // BITS
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    output = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
    inside_row, inside_output = row < rows, output < outputs
    lane = tl.arange(0, GROUP)
    total = tl.zeros((ROWS, OUTPUTS), dtype=tl.float32)
    groups = inputs // GROUP
    for block in range(groups):
        k = block * GROUP + lane
        left = tl.load(x + row.to(tl.int64)[:, None] * inputs + k[None, :], mask=inside_row[:, None], other=0.0)
        word = tl.load(
            packed + output.to(tl.int64)[:, None] * (inputs // each) + (k // each)[None, :],
            mask=inside_output[:, None], other=0,
        )  # fmt: skip
        code = (word >> ((k % each) * BITS)[None, :]) & ((1 << BITS) - 1)
        step = tl.load(scale + output * groups + block, mask=inside_output, other=0.0).to(tl.float32)
        middle = tl.load(zero + output * groups + block, mask=inside_output, other=0.0).to(tl.float32)
        weight = ((code.to(tl.float32) - middle[:, None]) * step[:, None]).to(left.dtype)
        total = tl.dot(left, tl.trans(weight), total, input_precision="ieee")
    at = row.to(tl.int64)[:, None] * outputs + output[None, :]
    tl.store(out + at, total.to(out.dtype.element_ty), mask=inside_row[:, None] & inside_output[None, :])


def _packed_matmul_triton(x: Tensor, packed: Tensor, scale: Tensor, zero: Tensor, bits: int) -> Tensor:
    rows, inputs = x.shape
    outputs = packed.shape[0]
    out = torch.empty(rows, outputs, dtype=x.dtype, device=x.device)
    block_rows = min(64, max(16, triton.next_power_of_2(rows)))  # a matrix unit takes no fewer than 16 rows
    grid = (triton.cdiv(rows, block_rows), triton.cdiv(outputs, 64))
    _packed_matmul_kernel[grid](
        x.contiguous(), packed.contiguous(), scale.contiguous(), zero.contiguous(), out, rows, outputs, inputs,
        BITS=bits, GROUP=inputs // scale.shape[1], ROWS=block_rows, OUTPUTS=64,
    )  # fmt: skip
    return out


def packed_matmul(x: Tensor, packed: Tensor, scale: Tensor, zero: Tensor, bits: int) -> Tensor:
    """`packed_matmul_ref`, or its kernel on a GPU when the group is a power of two of at least 16."""
    outputs, words = packed.shape
    inputs = words * 32 // bits
    if x.shape[-1] != inputs:
        raise ValueError(f"x has {x.shape[-1]} inputs but the packed weight has {inputs}; are its bits {bits}?")
    if scale.shape != zero.shape or scale.shape[0] != outputs or inputs % scale.shape[1]:
        raise ValueError(
            f"scale {list(scale.shape)} and zero {list(zero.shape)} must be [{outputs}, groups], groups dividing {inputs}"
        )
    group = inputs // scale.shape[1]
    if uses_triton(x) and group >= 16 and group & (group - 1) == 0:
        return _packed_matmul_triton(x, packed, scale, zero, bits)
    return packed_matmul_ref(x, packed, scale, zero, bits)

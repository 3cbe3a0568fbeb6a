"""NF4, the 4-bit type of QLoRA (arXiv 2305.14314), with double quantization of its scales.

If weights are normal, the best 16 levels are quantiles of the normal distribution, scaled to [−1, 1] with an exact zero. A block of
64 values is divided by its largest magnitude and each value takes the nearest level. The magnitudes cost 0.5 bit a weight in fp32;
double quantization subtracts their mean and keeps them in 8 bits with one fp32 scale for 256 of them: 0.127 bit. The 8 bits are
e4m3 here; bitsandbytes uses a table of its own. Codes fill bytes with the even value in the high half, as bitsandbytes does.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from steelyard_kernels.backend import uses_triton

# The quantiles as published with QLoRA.
LEVELS = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip
BLOCK = 64
SECOND_BLOCK = 256


class SmallScales(NamedTuple):
    """Magnitudes after double quantization: codes [n] e4m3, scale [n/256] float32, mean [1] float32."""

    codes: Tensor
    scale: Tensor
    mean: Tensor

    def dequantize(self) -> Tensor:
        """[n] float32."""
        scale = self.scale.repeat_interleave(SECOND_BLOCK)[: len(self.codes)]
        return self.codes.float() * scale + self.mean


class Nf4(NamedTuple):
    """Bytes [rows, inputs/2] and the magnitude of each block of 64 inputs, [rows, inputs/64] float32."""

    packed: Tensor
    largest: Tensor

    def dequantize(self) -> Tensor:
        """[rows, inputs] float32."""
        codes = torch.stack([self.packed >> 4, self.packed & 15], -1).flatten(-2)
        levels = torch.tensor(LEVELS, device=codes.device)[codes.long()]
        return (levels.unflatten(-1, (-1, BLOCK)) * self.largest.unsqueeze(-1)).flatten(-2)


def quantize_nf4(weight: Tensor) -> Nf4:
    """NF4 of a weight [rows, inputs], with fp32 magnitudes."""
    if weight.shape[-1] % BLOCK:
        raise ValueError(f"the weight has {weight.shape[-1]} inputs, which blocks of {BLOCK} do not divide")
    blocks = weight.float().unflatten(-1, (-1, BLOCK))
    largest = blocks.abs().amax(-1)
    scaled = blocks / largest.where(largest > 0, 1).unsqueeze(-1)
    levels = torch.tensor(LEVELS, device=weight.device)
    codes = torch.bucketize(scaled, (levels[1:] + levels[:-1]) / 2).to(torch.uint8).flatten(-2)
    return Nf4((codes[..., 0::2] << 4) | codes[..., 1::2], largest)


def quantize_scales(largest: Tensor) -> SmallScales:
    """Double quantization of magnitudes of any shape, flattened."""
    values = largest.flatten().float()
    mean = values.mean().reshape(1)
    centred = torch.nn.functional.pad(values - mean, (0, -len(values) % SECOND_BLOCK)).view(-1, SECOND_BLOCK)
    scale = (centred.abs().amax(1) / 448.0).clamp(min=1e-12)
    codes = (centred / scale[:, None]).clamp(-448.0, 448.0).to(torch.float8_e4m3fn).flatten()[: len(values)]
    return SmallScales(codes, scale, mean)


def nf4_matmul_ref(x: Tensor, weight: Nf4) -> Tensor:
    """y = x · Wᵀ, [rows, outputs], in fp32, in x's type."""
    return (x.float() @ weight.dequantize().T).to(x.dtype)


@triton.jit
def _nf4_matmul_kernel(
    x, packed, largest, levels, out, rows, outputs, inputs, ROWS: tl.constexpr, OUTPUTS: tl.constexpr
):
    """One program: ROWS × OUTPUTS results, walking over blocks of 64 inputs; levels are looked up in a table of 16."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    output = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
    lane = tl.arange(0, 64)
    total = tl.zeros((ROWS, OUTPUTS), dtype=tl.float32)
    for block in range(inputs // 64):
        k = block * 64 + lane
        left = tl.load(x + row.to(tl.int64)[:, None] * inputs + k[None, :], mask=(row < rows)[:, None], other=0.0)
        there = (output < outputs)[:, None]
        byte = tl.load(packed + output.to(tl.int64)[:, None] * (inputs // 2) + (k // 2)[None, :], mask=there, other=0)
        code = (byte.to(tl.int32) >> (4 - 4 * (k % 2))[None, :]) & 15
        scale = tl.load(largest + output * (inputs // 64) + block, mask=output < outputs, other=0.0)
        weight = (tl.load(levels + code) * scale[:, None]).to(left.dtype)
        total = tl.dot(left, tl.trans(weight), total, input_precision="ieee")
    at = row.to(tl.int64)[:, None] * outputs + output[None, :]
    tl.store(out + at, total.to(out.dtype.element_ty), mask=(row < rows)[:, None] & (output < outputs)[None, :])


def nf4_matmul(x: Tensor, weight: Nf4) -> Tensor:
    """`nf4_matmul_ref`, or its kernel on a GPU."""
    rows, inputs = x.shape
    outputs = weight.packed.shape[0]
    if weight.packed.shape[1] * 2 != inputs:
        raise ValueError(f"x has {inputs} inputs and the weight {weight.packed.shape[1] * 2}; they must be equal")
    if not uses_triton(x):
        return nf4_matmul_ref(x, weight)
    out = torch.empty(rows, outputs, dtype=x.dtype, device=x.device)
    block_rows = min(64, max(16, triton.next_power_of_2(rows)))
    _nf4_matmul_kernel[triton.cdiv(rows, block_rows), triton.cdiv(outputs, 64)](
        x.contiguous(), weight.packed.contiguous(), weight.largest.contiguous(), torch.tensor(LEVELS, device=x.device), out,
        rows, outputs, inputs, ROWS=block_rows, OUTPUTS=64,
    )  # fmt: skip
    return out

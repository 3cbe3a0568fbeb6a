"""BitNet b1.58 (arXiv 2402.17764, 2504.12285): weights of −1, 0 and 1, activations of 8 bits.

    weights:      s = mean|W|,  t = clip(round(W / s), −1, 1)
    activations:  q = clip(round(x · 127 / max|x|), −128, 127), by token
    y = (q · tᵀ) · s · max|x| / 127, the product exact in int32
Training keeps full-precision weights; rounding passes gradients straight through (STE), and a norm comes before each activation's
rounding. Only training works: rounding a trained model to three values destroys it. Two packings: `pack_quarters`, 2 bits, is that
of transformers' BitNet (rows i, i + N/4, … share a byte, code t + 1); `pack_fives`, 1.6 bits, is a byte in base 3 for five values.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from steelyard_kernels.backend import uses_triton

SMALLEST = 1e-5


class Ternary(NamedTuple):
    """Values [outputs, inputs] int8 in {−1, 0, 1}, and their scale [1] float32."""

    values: Tensor
    scale: Tensor

    def dequantize(self) -> Tensor:
        """[outputs, inputs] float32."""
        return self.values.float() * self.scale


def ternarize(weight: Tensor) -> Ternary:
    """The nearest ternary weight in BitNet's sense."""
    scale = weight.float().abs().mean().clamp(min=SMALLEST).reshape(1)
    return Ternary((weight.float() / scale).round().clamp(-1, 1).to(torch.int8), scale)


def quantize_activations(x: Tensor) -> tuple[Tensor, Tensor]:
    """Codes [..., inputs] int8 and scale [..., 1], one a token: x ≈ codes · scale."""
    scale = x.float().abs().amax(-1, keepdim=True).clamp(min=SMALLEST) / 127
    return (x.float() / scale).round().clamp(-128, 127).to(torch.int8), scale


def pack_quarters(values: Tensor) -> Tensor:
    """{−1, 0, 1} [outputs, inputs] → bytes [outputs/4, inputs]; row i of quarter j is in bits 2j and 2j + 1 of byte row i."""
    if values.shape[0] % 4:
        raise ValueError(f"{values.shape[0]} rows do not make four quarters")
    quarters = (values + 1).to(torch.uint8).unflatten(0, (4, -1))
    return quarters[0] | (quarters[1] << 2) | (quarters[2] << 4) | (quarters[3] << 6)


def unpack_quarters(packed: Tensor) -> Tensor:
    """The inverse of `pack_quarters`."""
    return torch.cat([((packed >> shift) & 3).to(torch.int8) - 1 for shift in (0, 2, 4, 6)])


def pack_fives(values: Tensor) -> Tensor:
    """{−1, 0, 1} [outputs, inputs] → bytes [outputs, ⌈inputs/5⌉], the first of five the lowest digit in base 3."""
    digits = F.pad((values + 1).to(torch.int32), (0, -values.shape[-1] % 5)).unflatten(-1, (-1, 5))
    powers = torch.tensor([1, 3, 9, 27, 81], dtype=torch.int32, device=values.device)
    return (digits * powers).sum(-1).to(torch.uint8)


def unpack_fives(packed: Tensor, inputs: int) -> Tensor:
    """The inverse of `pack_fives`; `inputs` drops the padding."""
    powers = torch.tensor([1, 3, 9, 27, 81], dtype=torch.int32, device=packed.device)
    digits = packed.to(torch.int32).unsqueeze(-1) // powers % 3
    return (digits.flatten(-2)[..., :inputs] - 1).to(torch.int8)


class BitLinear(torch.nn.Module):
    """A linear that trains with full-precision weights and computes with ternary ones."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(outputs, inputs) / inputs**0.5)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., inputs] → [..., outputs]; gradients pass the two roundings as if they were not there."""
        x = F.rms_norm(x, (x.shape[-1],))
        codes, scale = quantize_activations(x)
        values, weight_scale = ternarize(self.weight)
        x = x + (codes * scale - x).detach()
        weight = self.weight + (values * weight_scale - self.weight).detach()
        return x @ weight.T


def ternary_matmul_ref(codes: Tensor, packed: Tensor) -> Tensor:
    """int8 codes [rows, inputs] and `pack_quarters` bytes [outputs/4, inputs] → exact int32 [rows, outputs].

    fp64 holds such sums exactly, and has a fast product where integers have none.
    """
    return (codes.double() @ unpack_quarters(packed).double().T).to(torch.int32)


@triton.jit
def _ternary_matmul_kernel(
    codes, packed, out, rows, quarter, inputs, ROWS: tl.constexpr, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr
):
    """One program: ROWS × OUTPUTS results of one quarter of the outputs, which is one pair of bits of each byte."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    output = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
    left_row, right_row = row.to(tl.int64)[:, None], output.to(tl.int64)[:, None]
    shift = tl.program_id(2) * 2
    lane = tl.arange(0, INPUTS)
    total = tl.zeros((ROWS, OUTPUTS), dtype=tl.int32)
    for start in range(0, inputs, INPUTS):
        k = start + lane
        there = (k < inputs)[None, :]
        left = tl.load(codes + left_row * inputs + k[None, :], mask=(row < rows)[:, None] & there, other=0)
        byte = tl.load(packed + right_row * inputs + k[None, :], mask=(output < quarter)[:, None] & there, other=0)
        value = ((byte.to(tl.int32) >> shift) & 3) - 1
        total = tl.dot(left, tl.trans(value.to(tl.int8)), total, out_dtype=tl.int32)
    at = left_row * (quarter * 4) + tl.program_id(2) * quarter + output[None, :]
    tl.store(out + at, total, mask=(row < rows)[:, None] & (output < quarter)[None, :])


def ternary_matmul(codes: Tensor, packed: Tensor) -> Tensor:
    """`ternary_matmul_ref`, or its kernel on a GPU."""
    (rows, inputs), quarter = codes.shape, packed.shape[0]
    if packed.shape[1] != inputs:
        raise ValueError(f"the codes have {inputs} inputs and the weight {packed.shape[1]}; they must be equal")
    if not uses_triton(codes):
        return ternary_matmul_ref(codes, packed)
    out = torch.empty(rows, quarter * 4, dtype=torch.int32, device=codes.device)
    block_rows = min(64, max(16, triton.next_power_of_2(rows)))
    _ternary_matmul_kernel[triton.cdiv(rows, block_rows), triton.cdiv(quarter, 64), 4](
        codes.contiguous(), packed.contiguous(), out, rows, quarter, inputs, ROWS=block_rows, OUTPUTS=64, INPUTS=64
    )
    return out

"""FP8 (e4m3) weights and activations: a scale a tensor, a row, or a block.

    scale = max|x| / 448,   code = x / scale rounded to e4m3, clamped to ±448 first
e4m3 has no infinity and torch's conversion gives NaN above 464, where NVIDIA's saturates. Weights take one scale a tensor, an
output channel, or a block of 128×128; activations one a tensor (static, from calibration), a token, or 128 values of a token (both
dynamic), as DeepSeek-V3 (arXiv 2412.19437) pairs them. The layouts are compressed-tensors' `float-quantized`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from steelyard_kernels.backend import uses_triton

LARGEST = 448.0
SMALLEST_SCALE = 1e-12
Granularity = Literal["tensor", "row", "block", "group"]


class Fp8(NamedTuple):
    """Codes [rows, inputs] e4m3 and scale [rows/tall, inputs/wide] float32: one for each `tall` × `wide` values."""

    codes: Tensor
    scale: Tensor
    tall: int
    wide: int

    def dequantize(self) -> Tensor:
        """[rows, inputs] float32."""
        rows, inputs = self.codes.shape
        scale = self.scale.repeat_interleave(self.tall, 0)[:rows].repeat_interleave(self.wide, 1)[:, :inputs]
        return self.codes.float() * scale


def quantize_fp8_ref(x: Tensor, granularity: Granularity, size: int = 128, kept: torch.dtype = torch.float32) -> Fp8:
    """Quantize x [rows, inputs]. `size` is the side of a block or the length of a group; edge blocks may be smaller.

    Scales are numbers of type `kept`, as a file has them, before codes are chosen.
    """
    rows, inputs = x.shape
    tall, wide = tile(granularity, rows, inputs, size)
    padded = torch.nn.functional.pad(x.float(), (0, -inputs % wide, 0, -rows % tall))
    blocks = padded.view(padded.shape[0] // tall, tall, padded.shape[1] // wide, wide)
    scale = (blocks.abs().amax((1, 3), keepdim=True) / LARGEST).clamp(min=SMALLEST_SCALE).to(kept).float()
    codes = (blocks / scale).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn)
    return Fp8(codes.view(padded.shape)[:rows, :inputs].contiguous(), scale[:, 0, :, 0].contiguous(), tall, wide)


def quantize_fp8_static(x: Tensor, scale: float) -> Fp8:
    """With a calibrated scale of the whole tensor; values beyond it saturate."""
    codes = (x.float() / scale).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn)
    return Fp8(codes, torch.full((1, 1), scale, device=x.device), *x.shape)


def tile(granularity: Granularity, rows: int, inputs: int, size: int) -> tuple[int, int]:
    """Rows and inputs that share a scale."""
    tiles = {"tensor": (rows, inputs), "row": (1, inputs), "block": (size, size), "group": (1, size)}
    if granularity not in tiles:
        raise ValueError(f"granularity is {granularity!r}; it must be one of {', '.join(tiles)}")
    return tiles[granularity]


@triton.jit
def _quantize_fp8_kernel(
    x, codes, scale, rows, inputs, size, largest, SMALLEST: tl.constexpr, LANES: tl.constexpr, ROWS: tl.constexpr
):
    """One program: one group of `size` inputs of ROWS rows."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    lane = tl.arange(0, LANES)
    column = tl.program_id(1) * size + lane
    inside = (row < rows)[:, None] & ((lane < size) & (column < inputs))[None, :]
    at = row.to(tl.int64)[:, None] * inputs + column[None, :]
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    most = tl.max(tl.abs(value), axis=1)
    step = tl.maximum(tl.div_rn(most, tl.zeros_like(most) + largest), SMALLEST)
    code = tl.div_rn(value, tl.broadcast_to(step[:, None], value.shape))
    tl.store(codes + at, tl.minimum(tl.maximum(code, -largest), largest).to(codes.dtype.element_ty), mask=inside)
    tl.store(scale + row * tl.num_programs(1) + tl.program_id(1), step, mask=row < rows)


def quantize_fp8(x: Tensor, granularity: Granularity, size: int = 128, kept: torch.dtype = torch.float32) -> Fp8:
    """`quantize_fp8_ref`; rows and groups, which activations need at every step, by the kernel on a GPU."""
    if not uses_triton(x) or granularity not in ("row", "group") or kept != torch.float32:
        return quantize_fp8_ref(x, granularity, size, kept)
    rows, inputs = x.shape
    _, wide = tile(granularity, rows, inputs, size)
    groups = triton.cdiv(inputs, wide)
    codes = torch.empty(rows, inputs, dtype=torch.float8_e4m3fn, device=x.device)
    scale = torch.empty(rows, groups, dtype=torch.float32, device=x.device)
    _quantize_fp8_kernel[triton.cdiv(rows, 16), groups](
        x.contiguous(), codes, scale, rows, inputs, wide, LARGEST,
        SMALLEST=SMALLEST_SCALE, LANES=triton.next_power_of_2(wide), ROWS=16,
    )  # fmt: skip
    return Fp8(codes, scale, 1, wide)

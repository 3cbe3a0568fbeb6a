"""4-bit floats (e2m1) with block scales: NVFP4 and MXFP4, bit for bit as compressed-tensors writes them.

e2m1 has the values 0 0.5 1 1.5 2 3 4 6 and a sign; ties go to the even code. Two codes fill a byte, the even input in the low half.
    NVFP4, 16 values: g = 448·6 / max|W| for the tensor, s = max|block| / 6 · g rounded to e4m3,   w ≈ e2m1 · s / g      4.5 bits
    MXFP4, 32 values: s = 2^e with e = ⌊log₂ max|block|⌋ − 2, where a mantissa of at least 1.75 counts as the next power; e + 127 in
    a byte (E8M0),   w ≈ e2m1 · s                                                                                        4.25 bits
compressed-tensors stores g; ModelOpt stores 1/g. Layers that an engine fuses (q, k, v; gate, up) must be given one g, `shared`: an
engine keeps only one of them and would read the others wrongly without a message.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from steelyard_kernels.backend import uses_triton

VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
NV_BLOCK, MX_BLOCK = 16, 32
LARGEST, LARGEST_SCALE = 6.0, 448.0


class Fp4(NamedTuple):
    """Packed codes [rows, inputs/2] uint8; scale [rows, blocks], e4m3 (NVFP4) or E8M0 bytes (MXFP4); global scale, 1 for MXFP4."""

    packed: Tensor
    scale: Tensor
    global_scale: Tensor

    def block_scale(self) -> Tensor:
        """What a code of a block is multiplied with, [rows, blocks] float32."""
        if self.scale.dtype == torch.uint8:
            return torch.exp2(self.scale.float() - 127)
        return self.scale.float() / self.global_scale

    def dequantize(self) -> Tensor:
        """[rows, inputs] float32."""
        values = decode(unpack_codes(self.packed)).unflatten(-1, (self.scale.shape[-1], -1))
        return (values * self.block_scale().unsqueeze(-1)).flatten(-2)


def encode(x: Tensor) -> Tensor:
    """The nearest e2m1 codes, uint8, of values already divided by their scale; beyond ±6 they saturate, and −0 is 0."""
    size = x.abs()
    code = torch.zeros_like(size, dtype=torch.uint8)
    for tie, goes_up in (
        (0.25, False),
        (0.75, True),
        (1.25, False),
        (1.75, True),
        (2.5, False),
        (3.5, True),
        (5.0, False),
    ):
        code += (size >= tie if goes_up else size > tie).to(torch.uint8)
    return code | ((x < 0).to(torch.uint8) << 3)


def decode(codes: Tensor) -> Tensor:
    """The values of e2m1 codes, float32."""
    values = torch.tensor(VALUES, device=codes.device)
    return torch.where(codes & 8 > 0, -values[(codes & 7).long()], values[(codes & 7).long()])


def pack_codes(codes: Tensor) -> Tensor:
    """Codes [..., n] → bytes [..., n/2]."""
    return codes[..., 0::2] | (codes[..., 1::2] << 4)


def unpack_codes(packed: Tensor) -> Tensor:
    """Bytes [..., n] → codes [..., 2n]."""
    return torch.stack([packed & 15, packed >> 4], -1).flatten(-2)


def global_scale(*weights: Tensor) -> Tensor:
    """NVFP4's g [1] for one weight, or for several that an engine fuses."""
    largest = (
        torch.stack([weight.abs().max().float() for weight in weights]).max().clamp(min=torch.finfo(torch.float32).tiny)
    )
    return (LARGEST * LARGEST_SCALE / largest).reshape(1)


def quantize_nvfp4(weight: Tensor, shared: Tensor | None = None) -> Fp4:
    """NVFP4 of a weight [rows, inputs]; `shared` is the g of the layers it is fused with."""
    _check(weight, NV_BLOCK)
    g = global_scale(weight) if shared is None else shared
    blocks = weight.float().unflatten(-1, (-1, NV_BLOCK))
    scale = (blocks.abs().amax(-1) / LARGEST * g).clamp(max=LARGEST_SCALE).to(torch.float8_e4m3fn)
    smallest = torch.tensor(0.125, device=weight.device).to(torch.float8_e4m3fn)  # a scale of 0 would divide by zero
    scale = torch.where(scale.float() == 0, smallest.float(), scale.float()).to(torch.float8_e4m3fn)
    codes = encode(blocks / (scale.float() / g).unsqueeze(-1))
    return Fp4(pack_codes(codes.flatten(-2)), scale, g)


def quantize_mxfp4_ref(weight: Tensor) -> Fp4:
    """MXFP4 of a weight [rows, inputs]."""
    _check(weight, MX_BLOCK)
    blocks = weight.float().unflatten(-1, (-1, MX_BLOCK))
    exponent = _mx_exponent(blocks.abs().amax(-1))
    codes = encode(blocks * torch.exp2(127 - exponent.float()).unsqueeze(-1))
    return Fp4(pack_codes(codes.flatten(-2)), exponent, torch.ones(1, device=weight.device))


def _mx_exponent(largest: Tensor) -> Tensor:
    """The biased exponent byte of block maxima: adding a quarter to the mantissa carries 1.75 and more into the exponent."""
    bits = largest.contiguous().view(torch.int32) + (1 << 21)
    return ((bits >> 23) - 2).clamp(0, 254).to(torch.uint8)


@triton.jit
def _mxfp4_kernel(weight, packed, scale, rows, inputs, ROWS: tl.constexpr):
    """One program: one block of 32 inputs of ROWS rows."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = (row < rows)[:, None]
    lane = tl.arange(0, 16)
    at = row.to(tl.int64)[:, None] * inputs + tl.program_id(1) * 32 + lane[None, :] * 2
    even = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    odd = tl.load(weight + at + 1, mask=inside, other=0.0).to(tl.float32)
    largest = tl.maximum(tl.max(tl.abs(even), axis=1), tl.max(tl.abs(odd), axis=1))
    exponent = tl.maximum(((largest.to(tl.int32, bitcast=True) + 2097152) >> 23) - 2, 0)
    factor = tl.exp2(127.0 - exponent.to(tl.float32))[:, None]
    byte = _encode(even * factor) | (_encode(odd * factor) << 4)
    place = row.to(tl.int64)[:, None] * (inputs // 2) + tl.program_id(1) * 16 + lane[None, :]
    tl.store(packed + place, byte.to(tl.uint8), mask=inside)
    tl.store(scale + row * (inputs // 32) + tl.program_id(1), exponent.to(tl.uint8), mask=row < rows)


@triton.jit
def _encode(x):
    """`encode`, as int32."""
    size = tl.abs(x)
    code = (size > 0.25).to(tl.int32) + (size >= 0.75).to(tl.int32) + (size > 1.25).to(tl.int32)
    code += (
        (size >= 1.75).to(tl.int32) + (size > 2.5).to(tl.int32) + (size >= 3.5).to(tl.int32) + (size > 5.0).to(tl.int32)
    )
    return code | ((x < 0).to(tl.int32) << 3)


def quantize_mxfp4(weight: Tensor) -> Fp4:
    """`quantize_mxfp4_ref`, or its kernel on a GPU (activations of W4A4 are quantized at every step)."""
    _check(weight, MX_BLOCK)
    if not uses_triton(weight):
        return quantize_mxfp4_ref(weight)
    rows, inputs = weight.shape
    packed = torch.empty(rows, inputs // 2, dtype=torch.uint8, device=weight.device)
    scale = torch.empty(rows, inputs // MX_BLOCK, dtype=torch.uint8, device=weight.device)
    _mxfp4_kernel[triton.cdiv(rows, 32), inputs // MX_BLOCK](weight.contiguous(), packed, scale, rows, inputs, ROWS=32)
    return Fp4(packed, scale, torch.ones(1, device=weight.device))


def _check(weight: Tensor, block: int) -> None:
    if weight.shape[-1] % block:
        raise ValueError(f"the weight has {weight.shape[-1]} inputs, which blocks of {block} do not divide")

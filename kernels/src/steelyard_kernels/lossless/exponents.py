"""Lossless coding of bf16 weights: Huffman-coded exponents, signs and mantissas as they are (DFloat11, arXiv 2504.11651).

Trained weights of a layer have nearly one size, so their 8 exponent bits carry 2.5 to 3 bits of information, while sign and
mantissa are random. Coded, a weight takes some 11 bits instead of 16, and every bit comes back: NaN, −0 and subnormals too.
Exponents are cut into chunks of `CHUNK` weights, each starting at a known bit, so that all chunks decode at once: one lane a chunk,
each lane one symbol a step. This saves memory, not time: decoding costs more than reading the bytes it saves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from steelyard_kernels.backend import uses_triton
from steelyard_kernels.lossless import huffman
from steelyard_kernels.lossless.huffman import LONGEST

CHUNK = 256
LANES = 128


class Coded(NamedTuple):
    """A bf16 tensor: sign and mantissa [n] uint8, the exponents' bits as bytes, each chunk's first bit [chunks] int64, and the
    code's lengths [256]."""

    rest: Tensor
    stream: Tensor
    starts: Tensor
    lengths: Tensor
    shape: tuple[int, ...]

    def nbytes(self) -> int:
        """What must be stored: a chunk's start as 4 bytes, the 256 code lengths as bytes."""
        return self.rest.nbytes + self.stream.nbytes + 4 * len(self.starts) + 256


def encode(weight: Tensor) -> Coded:
    """Code a bf16 tensor of any shape; ValueError for another type."""
    if weight.dtype != torch.bfloat16:
        raise ValueError(f"the tensor is {weight.dtype}; exponents of 8 bits and mantissas of 7 are bfloat16's")
    bits = weight.contiguous().view(torch.int16).flatten().to(torch.int32) & 0xFFFF
    exponents = (bits >> 7) & 0xFF
    rest = ((bits >> 8) & 0x80 | (bits & 0x7F)).to(torch.uint8)
    code = huffman.build(torch.bincount(exponents, minlength=256))
    lengths = code.lengths[exponents].to(torch.int64)
    ends = lengths.cumsum(0)
    first = ends - lengths
    total = int(ends[-1]) if len(ends) else 0
    # Room for reading four bytes at any place of the stream.
    stream = torch.zeros(total // 8 + 5, dtype=torch.int64)
    shifted = code.words[exponents].to(torch.int64) << (32 - lengths - first % 8)  # aligned within four bytes
    for byte in range(4):
        stream.index_add_(0, first // 8 + byte, (shifted >> (24 - 8 * byte)) & 0xFF)
    return Coded(rest, stream.to(torch.uint8), first[::CHUNK].clone(), code.lengths, tuple(weight.shape))


def exponents_ref(coded: Coded, begin: int, end: int) -> Tensor:
    """The exponents of chunks `begin` … `end` − 1, [(end − begin)·CHUNK] uint8; what follows the last weight is undefined."""
    symbols, lengths = huffman.from_lengths(coded.lengths).table()
    stream, at = coded.stream.to(torch.int64), coded.starts[begin:end].clone()
    out = torch.empty(len(at), CHUNK, dtype=torch.uint8)
    last = len(stream) - 4
    for step in range(CHUNK):
        byte = (at >> 3).clamp(max=last)  # lanes of the last chunk run past its end
        window = stream[byte] << 24 | stream[byte + 1] << 16 | stream[byte + 2] << 8 | stream[byte + 3]
        index = (window >> (32 - LONGEST - (at & 7))) & (2**LONGEST - 1)
        out[:, step] = symbols[index]
        at += lengths[index]
    return out.flatten()


@triton.jit
def _exponents_kernel(
    stream, starts, symbols, lengths, out, chunks, last, LONGEST: tl.constexpr, CHUNK: tl.constexpr, LANES: tl.constexpr
):
    """One program: LANES chunks in step, one symbol of each at a time."""
    lane = tl.program_id(0) * LANES + tl.arange(0, LANES)
    inside = lane < chunks
    at = tl.load(starts + lane, mask=inside, other=0)
    for step in range(CHUNK):
        byte = tl.minimum(at >> 3, last)
        window = tl.load(stream + byte).to(tl.int64) << 24
        window |= tl.load(stream + byte + 1).to(tl.int64) << 16
        window |= tl.load(stream + byte + 2).to(tl.int64) << 8
        window |= tl.load(stream + byte + 3).to(tl.int64)
        index = (window >> (32 - LONGEST - (at & 7))) & ((1 << LONGEST) - 1)
        tl.store(out + lane.to(tl.int64) * CHUNK + step, tl.load(symbols + index), mask=inside)
        at += tl.load(lengths + index).to(tl.int64)


def exponents(coded: Coded, begin: int, end: int) -> Tensor:
    """`exponents_ref`, or its kernel on a GPU."""
    if not uses_triton(coded.stream):
        return exponents_ref(coded, begin, end)
    device = coded.stream.device
    symbols, lengths = (part.to(device) for part in huffman.from_lengths(coded.lengths.cpu()).table())
    out = torch.empty((end - begin) * CHUNK, dtype=torch.uint8, device=device)
    _exponents_kernel[(triton.cdiv(end - begin, LANES),)](
        coded.stream, coded.starts[begin:end].contiguous(), symbols, lengths, out, end - begin, len(coded.stream) - 4,
        LONGEST=LONGEST, CHUNK=CHUNK, LANES=LANES,
    )  # fmt: skip
    return out


def decode_parts(coded: Coded, chunks: int = 4096) -> Iterator[Tensor]:
    """The weights in order, flat bf16 tensors of at most `chunks`·CHUNK values: a decoder that never holds the whole."""
    total = len(coded.starts)
    for begin in range(0, total, chunks):
        end = min(begin + chunks, total)
        rest = coded.rest[begin * CHUNK : end * CHUNK].to(torch.int32)
        exponent = exponents(coded, begin, end)[: len(rest)].to(torch.int32)
        bits = (rest & 0x80) << 8 | exponent << 7 | rest & 0x7F
        yield torch.where(bits >= 2**15, bits - 2**16, bits).to(torch.int16).view(torch.bfloat16)


def decode(coded: Coded) -> Tensor:
    """The tensor as it was, bit for bit."""
    parts = list(decode_parts(coded))
    return torch.cat(parts).view(coded.shape) if parts else torch.empty(coded.shape, dtype=torch.bfloat16)


def entropy_bits(weight: Tensor) -> float:
    """The least bits a weight can take when exponents are coded one by one: 8, and the exponents' entropy."""
    bits = weight.contiguous().view(torch.int16).flatten().to(torch.int32)
    share = torch.bincount((bits >> 7) & 0xFF, minlength=256).double() / max(bits.numel(), 1)
    return 8 + torch.special.entr(share).sum().item() / torch.log(torch.tensor(2.0)).item()

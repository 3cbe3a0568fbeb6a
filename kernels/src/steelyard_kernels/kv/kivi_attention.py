"""Decode attention over a packed KIVI cache: codes are unpacked in registers, never in memory.

    scores[h, t] = Σ_c q[h, c] · (code[t, c] · scale[c, t/G] + low[c, t/G]) / √d        keys, grouped along tokens
    out[h, c]    = Σ_t p[h, t] · (code[t, c] · scale[t, c/G] + low[t, c/G])             values, grouped along channels
for one new query a head. The softmax between them runs over packed and recent tokens together, so the two halves are two ops. Query
heads share a key head in groups: head h reads key head h // (query heads / key heads).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from steelyard_kernels.backend import uses_triton
from steelyard_kernels.kv.affine import Packed


def scores_ref(query: Tensor, keys: Packed) -> Tensor:
    """query [query heads, d] and packed keys [heads, d, tokens] → scores [query heads, tokens] float32."""
    values = keys.dequantize().repeat_interleave(query.shape[0] // keys.words.shape[0], 0)
    return torch.einsum("hd,hdt->ht", query.float(), values) / query.shape[-1] ** 0.5


def weighted_ref(probabilities: Tensor, values: Packed) -> Tensor:
    """probabilities [query heads, tokens] and packed values [heads, tokens, d] → [query heads, d] float32."""
    read = values.dequantize().repeat_interleave(probabilities.shape[0] // values.words.shape[0], 0)
    return torch.einsum("ht,htd->hd", probabilities.float(), read)


@triton.jit
def _scores_kernel(
    query, words, scale, low, out, tokens, repeat, root,
    WIDTH: tl.constexpr, BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program: BLOCK tokens of one query head. `root` is √d."""
    each: tl.constexpr = 32 // BITS
    head = tl.program_id(0).to(tl.int64)
    token = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    channel = tl.arange(0, WIDTH)
    inside = (token < tokens)[None, :]
    row = (head // repeat) * WIDTH + channel
    word = tl.load(words + row[:, None] * (tokens // each) + (token // each)[None, :], mask=inside, other=0)
    code = ((word >> ((token % each) * BITS)[None, :]) & ((1 << BITS) - 1)).to(tl.float32)
    group = row[:, None] * (tokens // GROUP) + (token // GROUP)[None, :]
    key = code * tl.load(scale + group, mask=inside, other=0.0).to(tl.float32)
    key += tl.load(low + group, mask=inside, other=0.0).to(tl.float32)
    asked = tl.load(query + head * WIDTH + channel).to(tl.float32)
    tl.store(out + head * tokens + token, tl.sum(key * asked[:, None], axis=0) / root, mask=token < tokens)


@triton.jit
def _weighted_kernel(
    probabilities, words, scale, low, out, tokens, repeat,
    WIDTH: tl.constexpr, BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program: all channels of one query head, walking over the tokens."""
    each: tl.constexpr = 32 // BITS
    head = tl.program_id(0).to(tl.int64)
    channel = tl.arange(0, WIDTH)
    total = tl.zeros((WIDTH,), dtype=tl.float32)
    for start in range(0, tokens, BLOCK):
        token = start + tl.arange(0, BLOCK)
        inside = (token < tokens)[:, None]
        row = (head // repeat) * tokens + token
        word = tl.load(words + row[:, None] * (WIDTH // each) + (channel // each)[None, :], mask=inside, other=0)
        code = ((word >> ((channel % each) * BITS)[None, :]) & ((1 << BITS) - 1)).to(tl.float32)
        group = row[:, None] * (WIDTH // GROUP) + (channel // GROUP)[None, :]
        value = code * tl.load(scale + group, mask=inside, other=0.0).to(tl.float32)
        value += tl.load(low + group, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(probabilities + head * tokens + token, mask=token < tokens, other=0.0).to(tl.float32)
        total += tl.sum(value * weight[:, None], axis=0)
    tl.store(out + head * WIDTH + channel, total)


def scores(query: Tensor, keys: Packed) -> Tensor:
    """`scores_ref`, or its kernel on a GPU when the width is a power of two."""
    heads, width = query.shape
    tokens = keys.words.shape[-1] * 32 // keys.bits
    if not uses_triton(query) or width & (width - 1):
        return scores_ref(query, keys)
    out = torch.empty(heads, tokens, dtype=torch.float32, device=query.device)
    _scores_kernel[heads, triton.cdiv(tokens, 128)](
        query.contiguous(), keys.words.contiguous(), keys.scale.contiguous(), keys.low.contiguous(), out,
        tokens, heads // keys.words.shape[0], width**0.5,
        WIDTH=width, BITS=keys.bits, GROUP=tokens // keys.scale.shape[-1], BLOCK=128,
    )  # fmt: skip
    return out


def weighted(probabilities: Tensor, values: Packed) -> Tensor:
    """`weighted_ref`, or its kernel on a GPU when the width is a power of two."""
    heads, tokens = probabilities.shape
    width = values.words.shape[-1] * 32 // values.bits
    if not uses_triton(probabilities) or width & (width - 1):
        return weighted_ref(probabilities, values)
    out = torch.empty(heads, width, dtype=torch.float32, device=probabilities.device)
    _weighted_kernel[(heads,)](
        probabilities.contiguous(), values.words.contiguous(), values.scale.contiguous(), values.low.contiguous(), out,
        tokens, heads // values.words.shape[0],
        WIDTH=width, BITS=values.bits, GROUP=width // values.scale.shape[-1], BLOCK=64,
    )  # fmt: skip
    return out

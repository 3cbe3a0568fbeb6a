"""Prefill attention with both products in fp8 (e4m3), as FlashAttention 3 does (arXiv 2407.08608).

    S = (Q₈·K₈ᵀ)·s_q·s_k/√d,   P = e^(S − m) ∈ [0, 1],   O = (P₈·V₈)·s_v / l,   l = Σ P
Scales are one a head: max|x| / 448. P has a scale known beforehand: it is multiplied by 256, a power of two below 448, so that
small probabilities keep their bits. l is summed in fp32 from P before rounding: only then does Σ P₈ ≈ l, without a bias. Turning Q
and K by one random-sign Hadamard matrix beforehand (`rotation.hadamard`) leaves the scores and spreads outliers over the head's
width.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from steelyard_kernels.attention.prefill import visible
from steelyard_kernels.backend import uses_triton

LARGEST = 448.0
PROBABILITY_SCALE = 256.0
E4M3 = torch.float8_e4m3fn


class Heads(NamedTuple):
    """Codes [heads, tokens, d] e4m3 and scale [heads] float32."""

    codes: Tensor
    scale: Tensor


def quantize_heads(x: Tensor) -> Heads:
    """One scale a head."""
    scale = (x.float().abs().amax((1, 2)) / LARGEST).clamp(min=1e-12)
    return Heads((x.float() / scale[:, None, None]).clamp(-LARGEST, LARGEST).to(E4M3), scale)


def prefill_fp8_ref(query: Heads, keys: Heads, values: Heads) -> Tensor:
    """[heads, new, d] of queries, [key heads, prefix + new, d] of keys and values → [heads, new, d] float32."""
    new, total = query.codes.shape[1], keys.codes.shape[1]
    repeat = query.codes.shape[0] // keys.codes.shape[0]
    k, v = (part.codes.float().repeat_interleave(repeat, 0) for part in (keys, values))
    key_scale, value_scale = (part.scale.repeat_interleave(repeat, 0)[:, None, None] for part in (keys, values))
    scores = (
        query.codes.float() @ k.transpose(1, 2) * query.scale[:, None, None] * key_scale / query.codes.shape[-1] ** 0.5
    )
    scores = scores.masked_fill(~visible(new, total, scores.device), -torch.inf)
    probabilities = (scores - scores.amax(-1, keepdim=True)).exp()
    rounded = (probabilities * PROBABILITY_SCALE).to(E4M3).float()
    return rounded @ v * value_scale / PROBABILITY_SCALE / probabilities.sum(-1, keepdim=True)


@triton.jit
def _prefill_fp8_kernel(
    query, keys, values, query_scale, key_scale, value_scale, out, new, total_keys, repeat, scale,
    WIDTH: tl.constexpr, LANES: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """One program: ROWS queries of one head. `scale` is 1/√d, STEP the scale of probabilities."""
    head = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    lane = tl.arange(0, LANES)
    prefix = total_keys - new
    inside = (row < new)[:, None] & (lane < WIDTH)[None, :]
    q = tl.load(query + (head * new + row)[:, None] * WIDTH + lane[None, :], mask=inside, other=0.0)
    step = tl.load(query_scale + head) * tl.load(key_scale + head // repeat) * scale
    largest = tl.full((ROWS,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((ROWS,), dtype=tl.float32)
    result = tl.zeros((ROWS, LANES), dtype=tl.float32)
    last = tl.minimum(total_keys, prefix + (tl.program_id(1) + 1) * ROWS)
    for start in range(0, last, BLOCK):
        token = start + tl.arange(0, BLOCK)
        wanted = (token < total_keys)[:, None] & (lane < WIDTH)[None, :]
        at = ((head // repeat) * total_keys + token)[:, None] * WIDTH + lane[None, :]
        scores = tl.dot(q, tl.trans(tl.load(keys + at, mask=wanted, other=0.0))) * step
        scores = tl.where(token[None, :] <= prefix + row[:, None], scores, float("-inf"))
        new_largest = tl.maximum(largest, tl.max(scores, axis=1))
        probability = tl.exp(scores - new_largest[:, None])
        fading = tl.exp(largest - new_largest)
        total = total * fading + tl.sum(probability, axis=1)
        v = tl.load(values + at, mask=wanted, other=0.0)
        result = result * fading[:, None] + tl.dot((probability * STEP).to(v.dtype), v)
        largest = new_largest
    result = result * (tl.load(value_scale + head // repeat) / STEP) / total[:, None]
    tl.store(out + (head * new + row)[:, None] * WIDTH + lane[None, :], result, mask=inside)


def prefill_fp8(query: Heads, keys: Heads, values: Heads) -> Tensor:
    """`prefill_fp8_ref`, or its kernel on a GPU. The kernel rounds P below its running maximum, so results differ by fp8's step."""
    heads, new, width = query.codes.shape
    if not uses_triton(query.codes):
        return prefill_fp8_ref(query, keys, values)
    out = torch.empty(heads, new, width, dtype=torch.float32, device=query.codes.device)
    _prefill_fp8_kernel[heads, triton.cdiv(new, 64)](
        query.codes.contiguous(), keys.codes.contiguous(), values.codes.contiguous(),
        query.scale, keys.scale, values.scale, out, new, keys.codes.shape[1], heads // keys.codes.shape[0], width**-0.5,
        WIDTH=width, LANES=max(32, triton.next_power_of_2(width)), ROWS=64, BLOCK=64, STEP=PROBABILITY_SCALE,
    )  # fmt: skip
    return out

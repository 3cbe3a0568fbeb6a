"""Prefill attention after a prefix: new queries see all the prefix and, of the new tokens, those up to themselves.

With P prefix tokens, query i sees keys 0 … P + i. One pass over blocks of keys with the online softmax (FlashAttention, arXiv
2205.14135): m' = max(m, max s), α = e^(m − m'), l' = α·l + Σe^(s − m'), o' = α·o + e^(s − m')·V; blocks past the last visible key
are not read. The log-sum-exp comes back too: it joins parts (`merge`) and gives column sums (`column_sums`).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from steelyard_kernels.backend import uses_triton


def visible(queries: int, keys: int, device: torch.device | None = None) -> Tensor:
    """Which keys [queries, keys] the queries, the last tokens, may see."""
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)


def prefill_ref(query: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """query [heads, new, d], keys and values [key heads, prefix + new, d] → out [heads, new, d] and lse [heads, new].

    Computed in fp32, or fp64 for fp64 inputs.
    """
    working = torch.float64 if query.dtype == torch.float64 else torch.float32
    repeat = query.shape[0] // keys.shape[0]
    k, v = (part.to(working).repeat_interleave(repeat, 0) for part in (keys, values))
    scores = query.to(working) @ k.transpose(1, 2) / query.shape[-1] ** 0.5
    scores = scores.masked_fill(~visible(query.shape[1], keys.shape[1], query.device), -torch.inf)
    return (scores.softmax(-1) @ v).to(query.dtype), scores.logsumexp(-1)


@triton.jit
def _prefill_kernel(
    query, keys, values, out, lse, new, total_keys, repeat, scale,
    WIDTH: tl.constexpr, LANES: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program: ROWS queries of one head."""
    head = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    lane = tl.arange(0, LANES)
    prefix = total_keys - new
    inside = (row < new)[:, None] & (lane < WIDTH)[None, :]
    q = tl.load(query + (head * new + row)[:, None] * WIDTH + lane[None, :], mask=inside, other=0.0)
    largest = tl.full((ROWS,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((ROWS,), dtype=tl.float32)
    result = tl.zeros((ROWS, LANES), dtype=tl.float32)
    last = tl.minimum(total_keys, prefix + (tl.program_id(1) + 1) * ROWS)
    for start in range(0, last, BLOCK):
        token = start + tl.arange(0, BLOCK)
        wanted = (token < total_keys)[:, None] & (lane < WIDTH)[None, :]
        at = ((head // repeat) * total_keys + token)[:, None] * WIDTH + lane[None, :]
        k = tl.load(keys + at, mask=wanted, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        scores = tl.where(token[None, :] <= prefix + row[:, None], scores, float("-inf"))
        new_largest = tl.maximum(largest, tl.max(scores, axis=1))
        probability = tl.exp(scores - new_largest[:, None])
        fading = tl.exp(largest - new_largest)
        v = tl.load(values + at, mask=wanted, other=0.0)
        total = total * fading + tl.sum(probability, axis=1)
        result = result * fading[:, None] + tl.dot(probability.to(v.dtype), v, input_precision="ieee")
        largest = new_largest
    at = (head * new + row)[:, None] * WIDTH + lane[None, :]
    tl.store(out + at, (result / total[:, None]).to(out.dtype.element_ty), mask=inside)
    tl.store(lse + head * new + row, largest + tl.log(total), mask=row < new)


def prefill(query: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """`prefill_ref`, or its kernel on a GPU."""
    heads, new, width = query.shape
    if heads % keys.shape[0]:
        raise ValueError(f"{heads} query heads cannot share {keys.shape[0]} key heads evenly")
    if keys.shape[1] < new:
        raise ValueError(
            f"there are {new} new queries but only {keys.shape[1]} keys; the new tokens' keys must be among them"
        )
    if not uses_triton(query) or query.dtype == torch.float64:
        return prefill_ref(query, keys, values)
    out = torch.empty_like(query, memory_format=torch.contiguous_format)
    lse = torch.empty(heads, new, dtype=torch.float32, device=query.device)
    _prefill_kernel[heads, triton.cdiv(new, 64)](
        query.contiguous(), keys.contiguous(), values.contiguous(), out, lse, new, keys.shape[1], heads // keys.shape[0],
        width**-0.5, WIDTH=width, LANES=max(16, triton.next_power_of_2(width)), ROWS=64, BLOCK=64,
    )  # fmt: skip
    return out, lse

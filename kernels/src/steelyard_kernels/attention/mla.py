"""Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434), absorbed decode over a paged latent cache.

A token stores one latent c [rank] and one rotary key r [rotary] for all heads together: 512 + 64 values where 128 heads of MHA
would store 32768. A head's key is [W_UK·c ; r] and its value W_UV·c. Decode never makes them: with q_lat = W_UKᵀ·q_nope,
    score = (q_lat·c + q_rope·r) / √(nope + rotary),   out = W_UV · Σ p·c
so attention is MQA with keys of 576 and values of 512, the first part of the keys. 576 is no multiple of 128: the two parts are
separate products.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from steelyard_kernels.attention.merge import merge
from steelyard_kernels.attention.paged import gather
from steelyard_kernels.backend import uses_triton


def absorb(query: Tensor, up_key: Tensor) -> Tensor:
    """q_nope [batch, heads, nope] and W_UK [heads, nope, rank] → the latent query [batch, heads, rank]."""
    return torch.einsum("bhn,hnr->bhr", query, up_key)


def expand(latent: Tensor, up_value: Tensor) -> Tensor:
    """Attention over latents [batch, heads, rank] and W_UV [heads, v, rank] → the heads' outputs [batch, heads, v]."""
    return torch.einsum("bhr,hvr->bhv", latent, up_value)


def mla_decode_ref(
    latent_query: Tensor, rotary_query: Tensor, pool: Tensor, table: Tensor, lengths: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """Queries [batch, heads, rank] and [batch, heads, rotary], pool [pages, size, rank + rotary] → [batch, heads, rank], lse.

    `scale` is 1/√(nope + rotary). Computed in fp32, or fp64 for fp64 inputs.
    """
    working = torch.float64 if latent_query.dtype == torch.float64 else torch.float32
    rank = latent_query.shape[-1]
    queries = torch.cat([latent_query, rotary_query], -1).to(working)
    outputs, sums = [], []
    for query, row, length in zip(queries, table, lengths.tolist(), strict=True):
        keys = gather(pool, row, length).to(working)
        scores = query @ keys.T * scale
        outputs.append(scores.softmax(-1) @ keys[:, :rank])
        sums.append(scores.logsumexp(-1))
    return torch.stack(outputs).to(latent_query.dtype), torch.stack(sums)


@triton.jit
def _mla_kernel(
    latent_query, rotary_query, pool, table, lengths, out, out_lse, heads, table_width, scale,
    RANK: tl.constexpr, ROTARY: tl.constexpr, ROWS: tl.constexpr, PAGE: tl.constexpr, SPLIT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program: ROWS heads of one sequence, over SPLIT tokens."""
    batch, split = tl.program_id(0).to(tl.int64), tl.program_id(2)
    head = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    length = tl.load(lengths + batch)
    lane, rotary = tl.arange(0, RANK), tl.arange(0, ROTARY)
    mine = (head < heads)[:, None]
    row = (batch * heads + head)[:, None]
    latent = tl.load(latent_query + row * RANK + lane[None, :], mask=mine, other=0.0)
    turned = tl.load(rotary_query + row * ROTARY + rotary[None, :], mask=mine, other=0.0)
    largest = tl.full((ROWS,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((ROWS,), dtype=tl.float32)
    result = tl.zeros((ROWS, RANK), dtype=tl.float32)
    for start in range(split * SPLIT, tl.minimum((split + 1) * SPLIT, length), BLOCK):
        token = start + tl.arange(0, BLOCK)
        there = token < length
        page = tl.load(table + batch * table_width + token // PAGE, mask=there, other=0).to(tl.int64)
        at = (page * PAGE + token % PAGE)[:, None] * (RANK + ROTARY)
        c = tl.load(pool + at + lane[None, :], mask=there[:, None], other=0.0)
        r = tl.load(pool + at + RANK + rotary[None, :], mask=there[:, None], other=0.0)
        scores = tl.dot(latent, tl.trans(c), input_precision="ieee")
        scores = tl.dot(turned, tl.trans(r), scores, input_precision="ieee") * scale
        scores = tl.where(there[None, :], scores, float("-inf"))
        new_largest = tl.maximum(largest, tl.max(scores, axis=1))
        probability = tl.exp(scores - new_largest[:, None])
        fading = tl.exp(largest - new_largest)
        total = total * fading + tl.sum(probability, axis=1)
        result = result * fading[:, None] + tl.dot(probability.to(c.dtype), c, input_precision="ieee")
        largest = new_largest
    place = (split * tl.num_programs(0) + batch) * heads + head
    divisor = tl.where(total == 0.0, 1.0, total)  # a split past the sequence's end has no keys
    result = result / divisor[:, None]
    tl.store(out + place[:, None] * RANK + lane[None, :], result, mask=mine)
    tl.store(out_lse + place, tl.where(total == 0.0, float("-inf"), largest + tl.log(divisor)), mask=head < heads)


def mla_decode(
    latent_query: Tensor,
    rotary_query: Tensor,
    pool: Tensor,
    table: Tensor,
    lengths: Tensor,
    scale: float,
    split: int = 512,
) -> tuple[Tensor, Tensor]:
    """`mla_decode_ref`, or its kernel on a GPU when rank and rotary width are powers of two of at least 16."""
    batch, heads, rank = latent_query.shape
    rotary, page = rotary_query.shape[-1], pool.shape[1]
    if pool.shape[-1] != rank + rotary:
        raise ValueError(
            f"the pool holds {pool.shape[-1]} values a token; queries of {rank} and {rotary} need {rank + rotary}"
        )
    powers = all(n >= 16 and n & (n - 1) == 0 for n in (rank, rotary))
    if not uses_triton(latent_query) or latent_query.dtype == torch.float64 or not powers:
        return mla_decode_ref(latent_query, rotary_query, pool, table, lengths, scale)
    splits = max(1, triton.cdiv(table.shape[1] * page, split))
    out = torch.empty(splits, batch, heads, rank, dtype=torch.float32, device=pool.device)
    lse = torch.empty(splits, batch, heads, dtype=torch.float32, device=pool.device)
    _mla_kernel[batch, triton.cdiv(heads, 16), splits](
        latent_query.contiguous(), rotary_query.contiguous(), pool.contiguous(), table.contiguous(), lengths.contiguous(),
        out, lse, heads, table.shape[1], scale,
        RANK=rank, ROTARY=rotary, ROWS=16, PAGE=page, SPLIT=split, BLOCK=min(32, split),
    )  # fmt: skip
    merged, total = merge(out.flatten(1, 2), lse.flatten(1, 2))
    return merged.view(batch, heads, rank).to(latent_query.dtype), total.view(batch, heads)

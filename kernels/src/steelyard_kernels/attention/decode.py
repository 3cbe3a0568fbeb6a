"""Decode attention over paged keys and values: one new query a sequence, for MHA, GQA and MQA.

    out[b, h] = softmax(q[b, h] · K[b, g]ᵀ / √d) · V[b, g],   g = h // (query heads / key heads)
K and V are read through the sequence's page table. A long sequence has too little work for one program and a batch of one too few
programs for a GPU, so the keys are cut into splits, each with its own softmax, which `merge` joins by their log-sum-exp. The query
heads that share a key head are the rows of one matrix product; it has at least 16 rows, of which the surplus is masked.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from steelyard_kernels.attention.merge import merge
from steelyard_kernels.attention.paged import gather
from steelyard_kernels.backend import uses_triton


def paged_decode_ref(
    query: Tensor, keys: Tensor, values: Tensor, table: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor]:
    """query [batch, heads, d], pools [pages, size, key heads, d], table [batch, pages], lengths [batch] → out and lse.

    Computed in fp32 (fp64 for fp64 inputs). A sequence of length 0 gives zeros and lse −∞.
    """
    working = torch.float64 if query.dtype == torch.float64 else torch.float32
    repeat = query.shape[1] // keys.shape[2]
    outputs, sums = [], []
    for one, row, length in zip(query.to(working), table, lengths.tolist(), strict=True):
        k = gather(keys, row, length).to(working).repeat_interleave(repeat, 1)
        v = gather(values, row, length).to(working).repeat_interleave(repeat, 1)
        scores = torch.einsum("hd,thd->ht", one, k) / query.shape[-1] ** 0.5
        outputs.append(torch.einsum("ht,thd->hd", scores.softmax(-1), v))
        sums.append(scores.logsumexp(-1))
    return torch.stack(outputs).to(query.dtype), torch.stack(sums)


@triton.jit
def _decode_kernel(
    query, keys, values, table, lengths, out, out_lse, heads, key_heads, table_width, scale,
    WIDTH: tl.constexpr, LANES: tl.constexpr, ROWS: tl.constexpr, PAGE: tl.constexpr, SPLIT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program: the query heads of one key head of one sequence, over SPLIT tokens."""
    batch, key_head, split = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    length = tl.load(lengths + batch)
    repeat = heads // key_heads
    row, lane = tl.arange(0, ROWS), tl.arange(0, LANES)
    head = key_head * repeat + row
    inside = (row < repeat)[:, None] & (lane < WIDTH)[None, :]
    q = tl.load(query + (batch * heads + head)[:, None] * WIDTH + lane[None, :], mask=inside, other=0.0)
    largest = tl.full((ROWS,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((ROWS,), dtype=tl.float32)
    result = tl.zeros((ROWS, LANES), dtype=tl.float32)
    for start in range(split * SPLIT, tl.minimum((split + 1) * SPLIT, length), BLOCK):
        token = start + tl.arange(0, BLOCK)
        there = token < length
        page = tl.load(table + batch * table_width + token // PAGE, mask=there, other=0).to(tl.int64)
        at = ((page * PAGE + token % PAGE) * key_heads + key_head)[:, None] * WIDTH + lane[None, :]
        wanted = there[:, None] & (lane < WIDTH)[None, :]
        k = tl.load(keys + at, mask=wanted, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        scores = tl.where(there[None, :], scores, float("-inf"))
        new_largest = tl.maximum(largest, tl.max(scores, axis=1))
        probability = tl.exp(scores - new_largest[:, None])
        fading = tl.exp(largest - new_largest)
        v = tl.load(values + at, mask=wanted, other=0.0)
        total = total * fading + tl.sum(probability, axis=1)
        result = result * fading[:, None] + tl.dot(probability.to(v.dtype), v, input_precision="ieee")
        largest = new_largest
    place = (split * tl.num_programs(0) + batch) * heads + head
    divisor = tl.where(total == 0.0, 1.0, total)  # a split past the sequence's end has no keys
    result = result / divisor[:, None]
    tl.store(out + place[:, None] * WIDTH + lane[None, :], result, mask=inside)
    tl.store(out_lse + place, tl.where(total == 0.0, float("-inf"), largest + tl.log(divisor)), mask=row < repeat)


def _decode_triton(
    query: Tensor, keys: Tensor, values: Tensor, table: Tensor, lengths: Tensor, split: int
) -> tuple[Tensor, Tensor]:
    batch, heads, width = query.shape
    page, key_heads = keys.shape[1], keys.shape[2]
    splits = max(1, triton.cdiv(table.shape[1] * page, split))
    out = torch.empty(splits, batch, heads, width, dtype=torch.float32, device=query.device)
    lse = torch.empty(splits, batch, heads, dtype=torch.float32, device=query.device)
    _decode_kernel[batch, key_heads, splits](
        query.contiguous(), keys.contiguous(), values.contiguous(), table.contiguous(), lengths.contiguous(), out, lse,
        heads, key_heads, table.shape[1], width**-0.5,
        WIDTH=width, LANES=max(16, triton.next_power_of_2(width)), ROWS=max(16, triton.next_power_of_2(heads // key_heads)),
        PAGE=page, SPLIT=split, BLOCK=min(64, split),
    )  # fmt: skip
    merged, total = merge(out.flatten(1, 2), lse.flatten(1, 2))
    return merged.view(batch, heads, width).to(query.dtype), total.view(batch, heads)


def paged_decode(
    query: Tensor, keys: Tensor, values: Tensor, table: Tensor, lengths: Tensor, split: int = 512
) -> tuple[Tensor, Tensor]:
    """`paged_decode_ref`, or its kernel on a GPU with `split` tokens a program, a multiple of 64 (or 16 or 32)."""
    if query.shape[1] % keys.shape[2]:
        raise ValueError(f"{query.shape[1]} query heads cannot share {keys.shape[2]} key heads evenly")
    if split % 64 and split not in (16, 32):
        raise ValueError(f"split is {split}; it must be 16, 32 or a multiple of 64")
    if uses_triton(query) and query.dtype != torch.float64:
        return _decode_triton(query, keys, values, table, lengths, split)
    return paged_decode_ref(query, keys, values, table, lengths)

"""How much attention each key receives: s[k] = Σ_q p(q, k), from the queries, the keys and the log-sum-exp of each query.

A fused kernel never writes the probabilities, but p(q, k) = e^(q·k/√d − lse_q) follows from what it returns. So H2O's scores, and
SnapKV's with only the last queries given, cost a second pass over the keys and no memory for probabilities. Query heads that share
a key head are summed.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from steelyard_kernels.attention.prefill import visible
from steelyard_kernels.backend import uses_triton


def column_sums_ref(query: Tensor, keys: Tensor, lse: Tensor) -> Tensor:
    """query [heads, new, d], keys [key heads, total, d], lse [heads, new] → [key heads, total] float32."""
    repeat = query.shape[0] // keys.shape[0]
    scores = query.float() @ keys.float().repeat_interleave(repeat, 0).transpose(1, 2) / query.shape[-1] ** 0.5
    probabilities = (scores - lse.unsqueeze(-1)).exp() * visible(query.shape[1], keys.shape[1], query.device)
    return probabilities.unflatten(0, (keys.shape[0], -1)).sum((1, 2))


@triton.jit
def _column_sums_kernel(
    query, keys, lse, out, new, total_keys, repeat, scale,
    WIDTH: tl.constexpr, LANES: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program: BLOCK keys of one key head, walking over the queries of its heads that can see them."""
    key_head = tl.program_id(0).to(tl.int64)
    token = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    lane = tl.arange(0, LANES)
    prefix = total_keys - new
    wanted = (token < total_keys)[:, None] & (lane < WIDTH)[None, :]
    k = tl.load(keys + (key_head * total_keys + token)[:, None] * WIDTH + lane[None, :], mask=wanted, other=0.0)
    sums = tl.zeros((BLOCK,), dtype=tl.float32)
    first = tl.maximum(0, tl.program_id(1) * BLOCK - prefix) // ROWS * ROWS
    for shared in range(repeat):
        head = key_head * repeat + shared
        for start in range(first, new, ROWS):
            row = start + tl.arange(0, ROWS)
            inside = (row < new)[:, None] & (lane < WIDTH)[None, :]
            q = tl.load(query + (head * new + row)[:, None] * WIDTH + lane[None, :], mask=inside, other=0.0)
            level = tl.load(lse + head * new + row, mask=row < new, other=float("inf"))
            scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale - level[:, None]
            sums += tl.sum(tl.where(token[None, :] <= prefix + row[:, None], tl.exp(scores), 0.0), axis=0)
    tl.store(out + key_head * total_keys + token, sums, mask=token < total_keys)


def column_sums(query: Tensor, keys: Tensor, lse: Tensor) -> Tensor:
    """`column_sums_ref`, or its kernel on a GPU."""
    if not uses_triton(query):
        return column_sums_ref(query, keys, lse)
    heads, new, width = query.shape
    key_heads, total, _ = keys.shape
    out = torch.empty(key_heads, total, dtype=torch.float32, device=query.device)
    _column_sums_kernel[key_heads, triton.cdiv(total, 64)](
        query.contiguous(), keys.contiguous(), lse.contiguous(), out, new, total, heads // key_heads, width**-0.5,
        WIDTH=width, LANES=max(16, triton.next_power_of_2(width)), ROWS=64, BLOCK=64,
    )  # fmt: skip
    return out

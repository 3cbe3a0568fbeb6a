"""Pages: keys and values of many sequences in blocks of equal size, found through a table (PagedAttention, arXiv 2309.06180).

A pool is [pages, page size, heads, width]. Token t of sequence b lives in page table[b, t // size], at place t % size. Pages of a
sequence need not be in order or adjacent, and two sequences may share one: attention depends on the table's content only.
"""

from __future__ import annotations

import torch
from torch import Tensor


def gather(pool: Tensor, table: Tensor, length: int) -> Tensor:
    """The first `length` tokens of one sequence, [length, ...], by its row of the table [pages]."""
    size = pool.shape[1]
    return pool[table[: -(-length // size)].long()].flatten(0, 1)[:length]


def store(pool: Tensor, table: Tensor, start: int, tokens: Tensor) -> None:
    """Write tokens [new, ...] of one sequence into its pages, in place, from position `start` on."""
    size = pool.shape[1]
    positions = torch.arange(start, start + len(tokens), device=pool.device)
    if len(tokens) and int(positions[-1]) // size >= len(table):
        raise ValueError(
            f"position {int(positions[-1])} is in page {int(positions[-1]) // size} but the table has {len(table)}"
        )
    pool[table[positions // size].long(), positions % size] = tokens

"""A layer of experts: gate, up and down of each, on one process or with the experts spread over several.

    y = Σ_e w_e · down_e(silu(gate_e(x)) · up_e(x)) over a token's chosen experts
Expert parallelism gives each process experts/processes consecutive experts. Tokens go to the processes of their experts and come
back in two all-to-all exchanges; counts go first, since every process sends every other a number of rows of its own.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from steelyard_kernels.moe.grouped import grouped_matmul, permute, unpermute
from steelyard_kernels.moe.routers import Routing


class Experts(NamedTuple):
    """gate_up [experts, 2·hidden, width], the gates first, and down [experts, width, hidden]: all experts, or one process's."""

    gate_up: Tensor
    down: Tensor

    def of_process(self, rank: int, processes: int) -> Experts:
        """The share of one process; ValueError when the experts do not divide evenly."""
        count = len(self.down)
        if count % processes:
            raise ValueError(f"{count} experts do not divide among {processes} processes")
        mine = slice(rank * (count // processes), (rank + 1) * (count // processes))
        return Experts(self.gate_up[mine], self.down[mine])


def compute(experts: Experts, rows: Tensor, counts: Tensor) -> Tensor:
    """Rows [rows, width] sorted by expert, counts [experts] → [rows, width]."""
    gate, up = grouped_matmul(rows, experts.gate_up, counts).chunk(2, -1)
    return grouped_matmul(F.silu(gate) * up, experts.down, counts)


def forward(experts: Experts, x: Tensor, routing: Routing, keep: Tensor | None = None) -> Tensor:
    """All experts here: x [tokens, width] → [tokens, width]. `keep` [tokens, k] drops choices beyond capacity."""
    placed = permute(x, routing.experts, len(experts.down), keep)
    return unpermute(compute(experts, placed.x, placed.counts), placed, routing.weights)


def forward_spread(mine: Experts, x: Tensor, routing: Routing, keep: Tensor | None = None) -> Tensor:
    """This process's tokens x [tokens, width] through experts that are spread over the default process group."""
    processes = dist.get_world_size()
    here = len(mine.down)
    placed = permute(x, routing.experts, here * processes, keep)
    sent = placed.counts.view(processes, here)
    # What each process has for each of my experts.
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent)
    sending, receiving = sent.sum(1).tolist(), received.sum(1).tolist()
    rows = placed.x.new_empty(sum(receiving), x.shape[1])
    dist.all_to_all_single(rows, placed.x.contiguous(), receiving, sending)
    # Rows come sorted by sender, then by expert; the product wants them by expert.
    expert = torch.arange(here).repeat(processes).repeat_interleave(received.flatten())
    order = expert.argsort(stable=True)
    done = torch.empty_like(rows)
    done[order] = compute(mine, rows[order], received.sum(0))
    back = torch.empty_like(placed.x)
    dist.all_to_all_single(back, done, sending, receiving)
    return unpermute(back, placed, routing.weights)

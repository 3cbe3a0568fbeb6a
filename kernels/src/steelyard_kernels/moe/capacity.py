"""Capacity: how many tokens an expert takes, and which ones are dropped (Switch Transformer, arXiv 2101.03961).

    capacity = ⌈tokens · k / experts · factor⌉
Places go by choice first, then by the order of tokens: a token's first expert is worth more than another's second. A dropped choice
contributes nothing; the residual stream carries the token on. Usual factors are 1.0 to 1.25 in training and 2.0 in evaluation.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from steelyard_kernels.moe.routers import Routing


def capacity(tokens: int, k: int, experts: int, factor: float) -> int:
    """Places of one expert; at least 1."""
    if factor <= 0:
        raise ValueError(f"factor is {factor}; it must be above 0")
    return max(1, math.ceil(tokens * k / experts * factor))


def kept(routing: Routing, places: int) -> Tensor:
    """Which choices [tokens, k] have a place when every expert has `places`."""
    tokens, k = routing.experts.shape
    by_choice = routing.experts.T.flatten()  # all first choices, then all second ones
    order = by_choice.argsort(stable=True)
    counts = torch.bincount(by_choice, minlength=routing.scores.shape[1])
    first = counts.cumsum(0) - counts
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order), device=order.device) - first[by_choice[order]]
    return (rank < places).view(k, tokens).T


def dropped(routing: Routing, places: int) -> Routing:
    """The routing with the weights of dropped choices set to 0."""
    return routing._replace(weights=routing.weights * kept(routing, places))

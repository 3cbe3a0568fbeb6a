"""Routers: for each token its k experts and their weights.

    softmax (Mixtral):  p = softmax(logits); the k largest, divided by their sum
    grouped (DeepSeek-V3, arXiv 2412.19437):  s = sigmoid(logits); of `groups` equal groups those `kept` with the largest sum of
        their two best s + b are open; of their experts the k largest s + b; weights are s, without b, divided by their sum
The bias b balances load without a loss (arXiv 2408.15664): after a batch, b_i grows by u where expert i had less than the mean and
shrinks by u where it had more. It chooses experts and never weighs them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Routing(NamedTuple):
    """The chosen experts [tokens, k], best first, their weights [tokens, k], and all experts' scores [tokens, experts]."""

    experts: Tensor
    weights: Tensor
    scores: Tensor


def softmax_top_k(logits: Tensor, k: int) -> Routing:
    """Of logits [tokens, experts]."""
    _check(logits, k)
    scores = logits.float().softmax(-1)
    weights, experts = scores.topk(k, -1)
    return Routing(experts, weights / weights.sum(-1, keepdim=True), scores)


def grouped_sigmoid(logits: Tensor, bias: Tensor, k: int, groups: int, kept: int, scale: float = 1.0) -> Routing:
    """Of logits [tokens, experts] and bias [experts]; `kept` of `groups` groups are open to a token."""
    _check(logits, k)
    experts = logits.shape[1]
    if experts % groups or not 0 < kept <= groups or k > kept * experts // groups or experts // groups < 2:
        raise ValueError(
            f"{experts} experts in {groups} groups with {kept} open cannot give {k} experts a token: groups must be equal, "
            "of at least two experts, and the open ones must hold k"
        )
    scores = logits.float().sigmoid()
    chosen_by = scores + bias
    of_groups = chosen_by.unflatten(1, (groups, -1)).topk(2, -1).values.sum(-1)
    open_groups = torch.zeros_like(of_groups, dtype=torch.bool).scatter_(1, of_groups.topk(kept, -1).indices, True)
    closed = ~open_groups.repeat_interleave(experts // groups, 1)
    chosen = chosen_by.masked_fill(closed, float("-inf")).topk(k, -1).indices
    weights = scores.gather(1, chosen)
    return Routing(chosen, weights / (weights.sum(-1, keepdim=True) + 1e-20) * scale, scores)


def rebalanced(bias: Tensor, routing: Routing, step: float = 0.001) -> Tensor:
    """The bias [experts] for the next batch."""
    load = torch.bincount(routing.experts.flatten(), minlength=len(bias)).float()
    return bias + step * (load.mean() - load).sign()


def _check(logits: Tensor, k: int) -> None:
    if not 0 < k <= logits.shape[1]:
        raise ValueError(f"k is {k}; with {logits.shape[1]} experts it must be between 1 and {logits.shape[1]}")

"""Losses that keep a router balanced and its logits small.

    balance (Switch, arXiv 2101.03961):  experts · Σ_i f_i · P_i, f_i the share of choices of expert i, P_i its mean probability
    z (ST-MoE, arXiv 2202.08906):        mean over tokens of (log Σ_i e^logit_i)²
f sums to k over the experts, as in transformers, so a balanced router has a loss of k.
"""

from __future__ import annotations

import torch
from torch import Tensor

from steelyard_kernels.moe.routers import Routing


def balance(routing: Routing) -> Tensor:
    """The balance loss of one layer; gradients flow through the scores."""
    tokens, experts = routing.scores.shape
    chosen = torch.bincount(routing.experts.flatten(), minlength=experts).float() / tokens
    return experts * (chosen * routing.scores.mean(0)).sum()


def z(logits: Tensor) -> Tensor:
    """The z loss of logits [tokens, experts]."""
    return torch.logsumexp(logits.float(), -1).pow(2).mean()

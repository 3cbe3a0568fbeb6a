"""Moves size between a layer's activations and weights without changing what the layer computes: AWQ's scales and SmoothQuant's.

For a scale s of a linear's inputs, the linear's columns are multiplied by s and what makes the input is divided by it: a norm's
gains (before q, k, v and before gate, up), up_proj's rows and bias (before down_proj), or v_proj's (before o_proj, only where
every query head has a value head of its own).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from steelyard_kernels.model.llama import Shape
from steelyard_kernels.quant.awq import search_scale
from steelyard_kernels.quant.smooth import smoothing_scale
from steelyard_kernels.quant.statistics import Statistics

BITS = 4  # AWQ's layout has no other


class Readers(NamedTuple):
    """Linears of one input, and the tensor whose rows (or gains) make that input."""

    maker: str
    linears: tuple[str, ...]


NORMED = (
    Readers("input_layernorm", ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")),
    Readers("post_attention_layernorm", ("mlp.gate_proj", "mlp.up_proj")),
)
VALUES = Readers("self_attn.v_proj", ("self_attn.o_proj",))
INNER = Readers("mlp.up_proj", ("mlp.down_proj",))


def smoothed(
    tensors: Mapping[str, Tensor], prefix: str, seen: Mapping[str, Statistics], strength: float
) -> tuple[dict[str, Tensor], dict[str, Statistics]]:
    """SmoothQuant on the linears behind norms: the layer's new tensors, and the statistics of its new inputs."""
    out, statistics = _floats(tensors), dict(seen)
    for readers in NORMED:
        linears = [f"{prefix}.{name}" for name in readers.linears]
        scale = smoothing_scale(seen[linears[0]].largest, [out[f"{name}.weight"] for name in linears], strength)
        _fold(out, statistics, f"{prefix}.{readers.maker}", linears, scale)
    return out, statistics


def activation_aware(
    tensors: Mapping[str, Tensor], prefix: str, seen: Mapping[str, Statistics], shape: Shape, group: int
) -> tuple[dict[str, Tensor], dict[str, Statistics]]:
    """AWQ's searched scales on every linear that can take one: new tensors and statistics, as `smoothed`."""
    out, statistics = _floats(tensors), dict(seen)
    # down_proj before gate and up: its scale changes up's rows, which are to be rounded as they will be stored.
    for readers in (NORMED[0], *([VALUES] if shape.heads == shape.kv_heads else []), INNER, NORMED[1]):
        linears = [f"{prefix}.{name}" for name in readers.linears]
        of = statistics[linears[0]]
        weights = [out[f"{name}.weight"] for name in linears]
        scale = search_scale(weights, of.magnitude(), of.hessian, BITS, group, symmetric=False)
        _fold(out, statistics, f"{prefix}.{readers.maker}", linears, scale)
    return out, statistics


def _fold(
    tensors: dict[str, Tensor], statistics: dict[str, Statistics], maker: str, linears: Sequence[str], scale: Tensor
) -> None:
    made = tensors[f"{maker}.weight"]
    tensors[f"{maker}.weight"] = made / (scale if made.dim() == 1 else scale[:, None])
    if f"{maker}.bias" in tensors:
        tensors[f"{maker}.bias"] = tensors[f"{maker}.bias"] / scale
    before = statistics[linears[0]]
    after = Statistics(
        before.hessian / scale[:, None] / scale, before.total / scale, before.largest / scale, before.tokens
    )
    for name in linears:
        tensors[f"{name}.weight"] = tensors[f"{name}.weight"] * scale
        statistics[name] = after


def _floats(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.to(torch.float32) for name, tensor in tensors.items()}

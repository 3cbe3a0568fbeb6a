"""What rounding the inputs of a model's linears costs their outputs, without running the model again.

For an error e in an input x that linears of weights W read together, the cost is ‖W·e‖² over the mean ‖W·x‖². Inputs are gathered
once (`gather`), one pass forwards a window; a rotation's cost is then a product of its rounding errors with a root S of
Σ WᵀW = S·Sᵀ, and takes tokens of all windows instead of one window's.

All later tokens of a window attend to its first, which therefore is drawn more often than the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from steelyard_kernels.model.llama import Llama
from steelyard_kernels.rotation.quarot import READERS, fold_norms

FIRST = 20.0  # how much more often than another a window's first token is drawn
RESIDUAL: dict[str, tuple[str, ...]] = {readers[0].rsplit(".", 1)[1]: readers for readers in READERS.values()}
VALUE: dict[str, tuple[str, ...]] = {"o_proj": ("self_attn.o_proj",)}
"""Linears that read together what R1 turns, and what R2 turns, by the first of them."""


class Inputs(NamedTuple):
    """Inputs [sites, tokens, width] in bf16, and roots [sites, width, width] of what the linears of a site make of an error."""

    x: Tensor
    root: Tensor


class Gathered(NamedTuple):
    """The inputs that R1 turns, those that R2 turns head by head, and how often each token is drawn [tokens]."""

    residual: Inputs
    value: Inputs
    often: Tensor

    def drawn(self, count: int, generator: torch.Generator) -> tuple[Inputs, Inputs]:
        """`count` tokens of every site; ValueError where fewer were gathered."""
        if count > len(self.often):
            raise ValueError(
                f"{len(self.often)} tokens were gathered, fewer than the {count} that are drawn; gather more"
            )
        tokens = torch.multinomial(self.often, count, generator=generator)
        residual, value = (Inputs(one.x[:, tokens], one.root) for one in (self.residual, self.value))
        return residual, value


@torch.no_grad()
def gather(
    model: Llama, config: dict[str, Any], windows: Tensor, progress: Callable[[int], None] = lambda window: None
) -> Gathered:
    """Over windows [windows, tokens], the norms' gains folded into the linears; `progress` hears how many windows are done."""
    folded = Llama(config, {})
    folded.weights = fold_norms(model.weights, model.shape.layers)
    inputs: dict[str, list[Tensor]] = {}

    def see(name: str, x: Tensor) -> Tensor:
        if name.endswith((*RESIDUAL, *VALUE)):
            inputs.setdefault(name, []).append(x.bfloat16())
        return x

    folded.on_input = see
    for number, window in enumerate(windows):
        folded.forward(window)
        progress(number + 1)
    often = torch.ones(windows.shape)
    often[:, 0] = FIRST
    residual, value = (_sites(folded, inputs, readers) for readers in (RESIDUAL, VALUE))
    return Gathered(residual, value, often.flatten())


def _sites(model: Llama, inputs: dict[str, list[Tensor]], readers: dict[str, tuple[str, ...]]) -> Inputs:
    found, roots = [], []
    for layer in range(model.shape.layers):
        for together in readers.values():
            x = torch.cat(inputs.pop(f"model.layers.{layer}.{together[0]}"))
            weights = (model.weights[f"model.layers.{layer}.{name}.weight"] for name in together)
            metric = torch.stack([weight.T @ weight for weight in weights]).sum(0)
            metric = metric / ((x.float() @ metric) * x).sum(-1).mean().clamp(min=1e-30)
            values, vectors = torch.linalg.eigh(metric.double())
            roots.append((vectors * values.clamp(min=0).sqrt()).float())
            found.append(x)
    return Inputs(torch.stack(found), torch.stack(roots))


def cost(inputs: Inputs, rotation: Tensor, rounding: Callable[[Tensor], Tensor]) -> Tensor:
    """The mean relative squared error of outputs when what the rotation [n, n] makes of each n of an input's numbers is rounded."""
    turned = (inputs.x.float().unflatten(-1, (-1, len(rotation))) @ rotation).flatten(-2)
    error = (rounding(turned) - turned).unflatten(-1, (-1, len(rotation))) @ rotation.T
    return (error.flatten(-2) @ inputs.root).square().sum(-1).mean()

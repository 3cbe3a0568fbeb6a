"""One layer's way through a recipe: watch its inputs, balance, choose codes, and know what each linear's error is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from steelyard_kernels.kv.cache import WholeCache
from steelyard_kernels.model.llama import Llama, Shape
from steelyard_kernels.quant import fp4
from steelyard_kernels.quant.gptq import output_error
from steelyard_kernels.quant.statistics import Statistics
from steelyard_kernels.quantize import balance, codes
from steelyard_kernels.quantize.codes import Inputs
from steelyard_kernels.quantize.recipe import Recipe
from steelyard_kernels.quantize.source import LINEARS

# Linears that read the same input, so that one set of statistics serves all; engines hold the first two lines' in one tensor each.
TOGETHER = (LINEARS[:3], LINEARS[3:4], LINEARS[4:6], LINEARS[6:])


class Layer(NamedTuple):
    """A quantized layer: what goes into the file, what it means [fp32], what is known of inputs, and each linear's error.

    The error is ‖(W − Ŵ)·X‖ / ‖W·X‖ over the calibration, or ‖W − Ŵ‖ / ‖W‖ where the recipe does not calibrate.
    """

    stored: dict[str, Tensor]
    meaning: dict[str, Tensor]
    known: dict[str, Inputs]
    errors: dict[str, float]


def run(model: Llama, number: int, windows: Tensor) -> Tensor:
    """Hidden [windows, tokens, width] after one layer, a window at a time."""
    return torch.stack([model.layer(number, window, WholeCache()) for window in windows])


def watch(model: Llama, number: int, windows: Tensor) -> dict[str, Statistics]:
    """What the layer's linears read over hidden [windows, tokens, width], after what `model.on_input` makes of it."""
    prefix, before = f"model.layers.{number}", model.on_input
    found: dict[str, Statistics] = {}
    for names in TOGETHER:
        shared = Statistics.empty(model.weights[f"{prefix}.{names[0]}.weight"].shape[1])
        found |= {f"{prefix}.{name}": shared for name in names}
    first = {f"{prefix}.{names[0]}" for names in TOGETHER}

    def see(name: str, x: Tensor) -> Tensor:
        x = x if before is None else before(name, x)
        if name in first:
            found[name].add(x)
        return x

    model.on_input = see
    run(model, number, windows)
    model.on_input = before
    return found


def quantize(
    recipe: Recipe,
    group: int,
    shape: Shape,
    number: int,
    tensors: Mapping[str, Tensor],
    seen: Mapping[str, Statistics] | None,
) -> Layer:
    """Quantize a layer's tensors by their full names; `seen` is None where the recipe does not calibrate."""
    prefix = f"model.layers.{number}"
    balanced = {name: tensor.float() for name, tensor in tensors.items()}
    if seen is not None and recipe.method == "awq":
        balanced, seen = balance.activation_aware(tensors, prefix, seen, shape, group)
    elif seen is not None and recipe.smooth:
        balanced, seen = balance.smoothed(tensors, prefix, seen, recipe.smooth)
    kind = tensors[f"{prefix}.input_layernorm.weight"].dtype  # linears that were rotated come in fp32
    stored = {name: tensor.to(kind) for name, tensor in balanced.items() if name.endswith(("norm.weight", ".bias"))}
    meaning = {name: tensor.float() for name, tensor in stored.items()}
    known, errors = {}, {}
    for names in TOGETHER:
        linears = [f"{prefix}.{name}" for name in names]
        shared = _known(recipe, [balanced[f"{name}.weight"] for name in linears], seen[linears[0]] if seen else None)
        for linear in linears:
            weight = balanced[f"{linear}.weight"]
            chosen = codes.choose(recipe, group, linear, weight, shared)
            parts = codes.tensors_of(recipe, chosen, shared)
            stored |= {f"{linear}.{part}": value.contiguous() for part, value in parts.items()}
            meaning[f"{linear}.weight"] = chosen.dequantize()
            known[linear] = shared
            errors[linear] = _error(weight, meaning[f"{linear}.weight"], shared.seen)
    return Layer(stored, meaning, known, errors)


def _known(recipe: Recipe, weights: list[Tensor], seen: Statistics | None) -> Inputs:
    if recipe.weights != "nvfp4":
        return Inputs(seen)
    of_inputs = fp4.global_scale(seen.largest) if seen else None
    return Inputs(seen, fp4.global_scale(*weights), of_inputs)


def _error(weight: Tensor, rounded: Tensor, seen: Statistics | None) -> float:
    if seen is None:
        return ((weight - rounded).norm() / weight.norm().clamp(min=1e-30)).item()
    nothing = torch.zeros_like(weight)
    whole = output_error(weight, nothing, seen.hessian)
    return float((output_error(weight, rounded, seen.hessian) / max(whole, 1e-30)) ** 0.5)

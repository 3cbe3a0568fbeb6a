"""Formats of weights, and of weights with activations: what each costs in perplexity and in every layer's output.

A technique either changes each layer by what it read in the undamaged model, or takes layers in turn, each by what the changed ones
below it give, as `steelyard-quantize` does. At 3 bits GPTQ needs the latter: it makes up for errors over the inputs it is told of,
and those of an undamaged model are not what a layer behind damaged ones gets.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from steelyard_kernels.compare.subject import Activations, Subject
from steelyard_kernels.model.llama import Llama
from steelyard_kernels.quant import fp4, nf4
from steelyard_kernels.quant.awq import quantize_clipped, search_scale
from steelyard_kernels.quant.fp8 import quantize_fp8
from steelyard_kernels.quant.gptq import quantize_gptq, quantize_gptq_fp8
from steelyard_kernels.quant.groups import quantize_groups
from steelyard_kernels.quant.statistics import Statistics
from steelyard_kernels.quant.ternary import quantize_activations, ternarize
from steelyard_kernels.quantize import layer

GROUP = 64
SMOOTH = 0.5
SAMPLED = 4  # every fourth output is enough to search AWQ's scale with and to tell errors apart
Change = Callable[[str, Tensor, Statistics], Tensor]


class Technique(NamedTuple):
    """A name, bits a weight takes with its scales, what a weight becomes, what inputs become, whether a quick run has it, and
    whether layers are taken in turn."""

    name: str
    bits: float
    change: Change
    activations: Activations | None = None
    quick: bool = True
    in_turn: bool = False


def rounded(bits: int) -> Change:
    """Round to nearest, symmetric groups."""
    return lambda name, weight, seen: quantize_groups(weight, bits, GROUP).dequantize()


def gptq(bits: int) -> Change:
    """GPTQ, most active columns first."""
    return lambda name, weight, seen: quantize_gptq(weight, seen.hessian, bits, GROUP, by_activation=True).dequantize()


def rounded_fp8(name: str, weight: Tensor, seen: Statistics) -> Tensor:
    """A scale a row."""
    return quantize_fp8(weight, "row").dequantize()


def gptq_fp8(name: str, weight: Tensor, seen: Statistics) -> Tensor:
    """GPTQ's codes for the same format, as the preset fp8 has them."""
    return quantize_gptq_fp8(weight, seen.hessian).dequantize()


def awq(bits: int) -> Change:
    """AWQ, a scale for each linear; q and k are not clipped."""

    def change(name: str, weight: Tensor, seen: Statistics) -> Tensor:
        scale = search_scale([weight[::SAMPLED]], seen.magnitude(), seen.hessian, bits, GROUP)
        if name.endswith(("q_proj", "k_proj")):
            return quantize_groups(weight * scale, bits, GROUP).dequantize() / scale
        hessian = seen.hessian / scale[:, None] / scale
        return quantize_clipped(weight * scale, hessian, bits, GROUP).dequantize() / scale

    return change


def double_nf4(name: str, weight: Tensor, seen: Statistics) -> Tensor:
    """NF4 with its magnitudes in 8 bits."""
    found = nf4.quantize_nf4(weight)
    largest = nf4.quantize_scales(found.largest).dequantize().view(found.largest.shape)
    return nf4.Nf4(found.packed, largest).dequantize()


def plain_nf4(name: str, weight: Tensor, seen: Statistics) -> Tensor:
    """NF4 with its magnitudes in 16 bits: 4.25 bits a weight, as many as INT4 by groups of 64 takes."""
    found = nf4.quantize_nf4(weight)
    return nf4.Nf4(found.packed, found.largest.bfloat16().float()).dequantize()


def int8_inputs(name: str, x: Tensor) -> Tensor:
    """A scale a token."""
    codes, scale = quantize_activations(x)
    return codes * scale


def fp8_inputs(name: str, x: Tensor) -> Tensor:
    """A scale a token."""
    return quantize_fp8(x, "row").dequantize()


TECHNIQUES = (
    Technique("bf16", 16, lambda name, weight, seen: weight),
    Technique("FP8 weights, rounded", 8, rounded_fp8, quick=False),
    Technique("FP8 weights, rounded, FP8 inputs", 8, rounded_fp8, fp8_inputs, quick=False),
    Technique("FP8 weights", 8, gptq_fp8),
    Technique("FP8 weights, FP8 inputs", 8, gptq_fp8, fp8_inputs, quick=False),
    Technique(
        "INT8 weights, INT8 inputs", 8,
        lambda name, weight, seen: quantize_groups(weight, 8, weight.shape[1]).dequantize(), int8_inputs, quick=False,
    ),
    Technique("INT4 RTN g64", 4.25, rounded(4), quick=False),
    Technique("NF4, magnitudes in 16 bits", 4.25, plain_nf4, quick=False),
    Technique("NF4, double quantization", 4.127, double_nf4, quick=False),
    Technique("NVFP4 weights", 4.5, lambda name, weight, seen: fp4.quantize_nvfp4(weight).dequantize(), quick=False),
    Technique("MXFP4 weights", 4.25, lambda name, weight, seen: fp4.quantize_mxfp4(weight).dequantize(), quick=False),
    Technique("INT3 RTN g64", 3.25, rounded(3)),
    Technique("INT3 GPTQ g64", 3.25, gptq(3), in_turn=True),
    Technique("INT3 GPTQ g64, not in turn", 3.25, gptq(3), quick=False),
    Technique("INT3 AWQ g64", 3.25, awq(3)),
    Technique("ternary, after training", 2, lambda name, weight, seen: ternarize(weight).dequantize(), quick=False),
)  # fmt: skip


@torch.no_grad()
def measure(subject: Subject, quick: bool, done: Container[str]) -> Iterator[dict[str, Any]]:
    """One technique after another that is not `done`: perplexity, and each layer's relative error over the calibration."""
    statistics = cache(subject.statistics)  # only where a technique wants them
    earlier: tuple[Change, dict[str, Tensor], dict[str, float]] | None = None
    for technique in TECHNIQUES:
        if technique.name in done or (quick and not technique.quick):
            continue
        if (
            earlier is None or earlier[0] is not technique.change
        ):  # techniques that differ in inputs alone stand together
            found = (
                in_turn(subject, subject.model, technique.change)
                if technique.in_turn
                else _changed(subject, technique.change, statistics())
            )
            earlier = (technique.change, *found)
        _, changed, errors = earlier
        yield {
            "name": technique.name,
            "bits": technique.bits,
            **subject.judge(subject.changed(changed, technique.activations)),
            "error_by_layer": by_layer(errors),
        }


def _changed(
    subject: Subject, change: Change, statistics: dict[str, Statistics]
) -> tuple[dict[str, Tensor], dict[str, float]]:
    """The new weights by name, and each linear's relative error."""
    changed, errors = {}, {}
    for linear in subject.linears():
        weight, seen = subject.model.weights[f"{linear}.weight"], statistics[linear]
        new = changed[f"{linear}.weight"] = change(linear, weight, seen)
        errors[linear] = _error(weight[::SAMPLED], new[::SAMPLED], seen.hessian)
    return changed, errors


def in_turn(subject: Subject, start: Llama, change: Change) -> tuple[dict[str, Tensor], dict[str, float]]:
    """The same of `start`, every layer watched as it reads what the changed layers below it give and `on_input` makes of that."""
    changed, errors = {}, {}
    model = Llama(subject.config, {})
    model.weights, model.on_input = dict(start.weights), start.on_input
    hidden = model.weights["model.embed_tokens.weight"][subject.calibration]
    for number in range(model.shape.layers):
        if number % subject.effort.every == 0:
            for linear, seen in layer.watch(model, number, hidden).items():
                name = f"{linear}.weight"
                weight = model.weights[name]
                new = changed[name] = model.weights[name] = change(linear, weight, seen)
                errors[linear] = _error(weight[::SAMPLED], new[::SAMPLED], seen.hessian)
        hidden = layer.run(model, number, hidden)
    return changed, errors


def _error(weight: Tensor, new: Tensor, hessian: Tensor) -> float:
    """‖(W − Ŵ)·X‖ / ‖W·X‖ for H = X·Xᵀ, in fp32."""
    lost, whole = (((part @ hessian) * part).sum().item() for part in (weight - new, weight))
    return float((max(lost, 0.0) / whole) ** 0.5)


def by_layer(errors: dict[str, float]) -> list[float]:
    """The mean error of each layer's linears, in order."""
    layers: dict[int, list[float]] = {}
    for name, error in errors.items():
        layers.setdefault(int(name.split(".")[2]), []).append(error)
    return [sum(found) / len(found) for _, found in sorted(layers.items())]

"""From a weight to codes as a recipe chooses them, from codes to the tensors of its layout, and the config that says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from steelyard_kernels.formats import awq, bitsandbytes, compressed, gptq, ternary
from steelyard_kernels.quant import fp4
from steelyard_kernels.quant.awq import quantize_clipped
from steelyard_kernels.quant.fp4 import Fp4
from steelyard_kernels.quant.fp8 import Fp8, quantize_fp8
from steelyard_kernels.quant.gptq import quantize_gptq, quantize_gptq_fp8
from steelyard_kernels.quant.groups import Groups, quantize_groups
from steelyard_kernels.quant.nf4 import Nf4, quantize_nf4
from steelyard_kernels.quant.statistics import Statistics
from steelyard_kernels.quant.ternary import Ternary, quantize_activations, ternarize
from steelyard_kernels.quantize.errors import QuantizeError
from steelyard_kernels.quantize.recipe import GROUPS, Recipe

Codes = Groups | Fp8 | Fp4 | Nf4 | Ternary
UNCLIPPED = ("q_proj", "k_proj")  # a product of both goes through a softmax, which AWQ's error does not describe


class Inputs(NamedTuple):
    """What is known of a linear's inputs: statistics, when the recipe calibrates, and NVFP4's two global scales [1]."""

    seen: Statistics | None = None
    weight_scale: Tensor | None = None
    input_scale: Tensor | None = None


def settle_group(recipe: Recipe, inputs: set[int]) -> int:
    """The group size for linears with these numbers of inputs; QuantizeError when none divides them."""
    block = {"nvfp4": fp4.NV_BLOCK, "mxfp4": fp4.MX_BLOCK, "nf4": 64, "ternary": ternary.PER_WORD}.get(recipe.weights)
    wanted = (block,) if block else (recipe.group,) if recipe.group else GROUPS
    if recipe.weights in ("fp8", "int8"):
        return 0
    fitting = [size for size in wanted if all(count % size == 0 for count in inputs)]
    if not fitting:
        sizes = " or ".join(map(str, wanted))
        raise QuantizeError(
            f"{recipe.weights} needs groups of {sizes}, which do not divide all linears' inputs {sorted(inputs)}"
        )
    return fitting[0]


def bits(recipe: Recipe, group: int) -> float:
    """Bits that a weight takes in the file, scales included."""
    per_group = {"int4-gptq": 16 + 4, "int4-awq": 16 + 4}.get(recipe.weights, 0)
    plain = {"fp8": 8.0, "int8": 8.0, "nvfp4": 4.5, "mxfp4": 4.25, "nf4": 4.5, "ternary": 2.0}
    return plain.get(recipe.weights, 4 + per_group / group if group else 4.0)


def choose(recipe: Recipe, group: int, linear: str, weight: Tensor, known: Inputs) -> Codes:
    """The codes of a weight [outputs, inputs], their scales rounded to the type that the layout stores."""
    kind = recipe.weights
    if kind == "fp8" and recipe.method == "gptq" and known.seen is not None:
        return quantize_gptq_fp8(weight, known.seen.hessian, recipe.damping)
    if kind == "fp8":
        return quantize_fp8(weight, "row", kept=torch.bfloat16)
    if kind == "nvfp4":
        return fp4.quantize_nvfp4(weight, known.weight_scale)
    if kind == "mxfp4":
        return fp4.quantize_mxfp4(weight)
    if kind == "nf4":
        return quantize_nf4(weight)
    if kind == "ternary":
        return ternarize(weight)
    return _integers(recipe, group, linear, weight, known.seen)


def _integers(recipe: Recipe, group: int, linear: str, weight: Tensor, seen: Statistics | None) -> Groups:
    kept = torch.bfloat16 if recipe.layout == "compressed-tensors" else torch.float16
    if recipe.weights == "int8":
        return quantize_groups(weight, 8, weight.shape[1], kept=kept)
    symmetric = recipe.weights == "int4-gptq"
    if recipe.method == "rtn" or seen is None:
        return quantize_groups(weight, 4, group, symmetric, kept)
    if recipe.method == "gptq":
        return quantize_gptq(weight, seen.hessian, 4, group, True, recipe.by_activation, recipe.damping, kept)
    if linear.endswith(UNCLIPPED):
        return quantize_groups(weight, 4, group, symmetric, kept)
    return quantize_clipped(weight, seen.hessian, 4, group, symmetric, kept)


def tensors_of(recipe: Recipe, codes: Codes, known: Inputs) -> dict[str, Tensor]:
    """What a linear's codes are called in a file of the recipe's layout."""
    if isinstance(codes, Nf4):
        return bitsandbytes.tensors_of(codes)
    if isinstance(codes, Ternary):
        return ternary.tensors_of(codes)
    if isinstance(codes, Groups) and recipe.layout != "compressed-tensors":
        return gptq.tensors_of(codes) if recipe.layout == "gptq" else awq.tensors_of(codes)
    return compressed.tensors_of(codes, known.input_scale if recipe.activations == "nvfp4" else None)


def config(recipe: Recipe, group: int) -> dict[str, Any]:
    """`quantization_config` of config.json."""
    if recipe.layout == "compressed-tensors":
        plain = recipe.activations == "none"
        names = {
            "fp8": "fp8a16" if plain else "fp8",
            "int8": "w8a8",
            "int4-gptq": "w4a16",
            "nvfp4": "nvfp4a16" if plain else "nvfp4",
            "mxfp4": "mxfp4a16",
        }
        return compressed.config(compressed.scheme(names[recipe.weights], group or GROUPS[0]))
    if recipe.layout == "gptq":
        return gptq.config(4, group)
    return {"awq": awq.config(group), "bitsandbytes": bitsandbytes.config(), "ternary": ternary.config()}[recipe.layout]


def rounded_input(recipe: Recipe, known: Mapping[str, Inputs], linear: str, x: Tensor) -> Tensor:
    """The input that an engine computes with, x [tokens, inputs] having been rounded as the recipe says."""
    if recipe.activations == "fp8":
        return quantize_fp8(x, "row").dequantize()
    if recipe.activations == "int8":
        codes, scale = quantize_activations(x)
        return codes * scale
    if recipe.activations == "nvfp4":
        return fp4.quantize_nvfp4(x, known[linear].input_scale).dequantize()
    return x

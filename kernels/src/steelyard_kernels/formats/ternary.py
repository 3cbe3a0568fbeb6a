"""A layout of our own for ternary weights, read by `vllm_plugin`: engines have none for a Llama of plain linears.

A linear [outputs, inputs] becomes `weight_packed` int32 [outputs, inputs/16], codes value + 1 of 2 bits packed along the inputs,
the first in the lowest bits, and `weight_scale` fp32 [1]. Packing along the inputs lets an engine join q, k and v by rows. At run
time inputs are rounded to 8 bits a token, as BitNet does.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from steelyard_kernels.quant.groups import pack, unpack
from steelyard_kernels.quant.ternary import Ternary

METHOD = "steelyard_ternary"
PER_WORD = 16


def tensors_of(weight: Ternary) -> dict[str, Tensor]:
    """The layout's tensors; ValueError unless 16 divides the inputs."""
    inputs = weight.values.shape[1]
    if inputs % PER_WORD:
        raise ValueError(f"{inputs} inputs do not fill words of {PER_WORD} codes")
    return {"weight_packed": pack((weight.values + 1).to(torch.uint8), 2), "weight_scale": weight.scale.clone()}


def values_of(packed: Tensor) -> Tensor:
    """{−1, 0, 1} [outputs, inputs] int8 from `weight_packed`."""
    return unpack(packed, 2).to(torch.int8) - 1


def config() -> dict[str, Any]:
    """`quantization_config` of config.json."""
    return {"quant_method": METHOD, "bits": 2}

"""GPTQ's checkpoint layout (version 1), which vLLM, transformers and exllama read.

A linear [outputs, inputs] becomes, for b bits and groups of g inputs,
    qweight int32 [inputs·b/32, outputs], codes packed along the inputs, the first in the lowest bits
    qzeros  int32 [inputs/g, outputs·b/32], zero − 1, packed along the outputs
    scales  fp16  [inputs/g, outputs],   g_idx int32 [inputs], each input's group
Groups follow the order of the inputs (`desc_act` false): static groups let GPTQ take its columns in any order without a permutation
in the file. vLLM reads 4 or 8 bits, symmetric, and computes in fp16 or bf16 only.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from steelyard_kernels.quant.groups import Groups, pack, unpack


def tensors_of(codes: Groups) -> dict[str, Tensor]:
    """The layout's tensors; ValueError unless 32/bits divides the outputs and a zero is at least 1."""
    outputs, inputs = codes.codes.shape
    if outputs % (32 // codes.bits):
        raise ValueError(f"{outputs} outputs do not fill words of {32 // codes.bits} zeros; this layout needs that")
    group = inputs // codes.scale.shape[1]
    return {
        "qweight": pack(codes.codes.T.contiguous().T, codes.bits).T.contiguous(),
        "qzeros": pack((codes.zero.T - 1).to(torch.int32), codes.bits),
        "scales": codes.scale.T.half().contiguous(),
        "g_idx": (torch.arange(inputs) // group).to(torch.int32),
    }


def codes_of(tensors: dict[str, Tensor], bits: int) -> Groups:
    """The inverse of `tensors_of`."""
    codes = unpack(tensors["qweight"].T.contiguous(), bits)
    zero = unpack(tensors["qzeros"], bits).T.float() + 1
    return Groups(codes, tensors["scales"].T.float(), zero, bits)


def config(bits: int, group: int) -> dict[str, Any]:
    """`quantization_config` of config.json."""
    return {
        "quant_method": "gptq",
        "bits": bits,
        "group_size": group,
        "sym": True,
        "desc_act": False,
        "lm_head": False,
        "checkpoint_format": "gptq",
    }

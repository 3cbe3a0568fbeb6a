"""AWQ's checkpoint layout (`gemm`), which vLLM and transformers read: 4 bits with zero points.

A linear [outputs, inputs] becomes, for groups of g inputs,
    qweight int32 [inputs, outputs/8] and qzeros int32 [inputs/g, outputs/8], packed along the outputs
    scales  fp16  [inputs/g, outputs]
Eight outputs share a word in the order 0 2 4 6 1 3 5 7 from its lowest bits, which suits the kernel it was made for. Engines
compute in fp16 or bf16 only.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from steelyard_kernels.quant.groups import Groups, pack, unpack

ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
BITS = 4


def tensors_of(codes: Groups) -> dict[str, Tensor]:
    """The layout's tensors; ValueError unless codes have 4 bits and 8 divides the outputs."""
    outputs = codes.codes.shape[0]
    if codes.bits != BITS or outputs % 8:
        raise ValueError(
            f"AWQ's layout holds 4 bits and outputs by eights, not {codes.bits} bits and {outputs} outputs"
        )
    scales = codes.scale.T.half().contiguous()
    return {"qweight": _packed(codes.codes.T), "qzeros": _packed(codes.zero.T.to(torch.uint8)), "scales": scales}


def codes_of(tensors: dict[str, Tensor]) -> Groups:
    """The inverse of `tensors_of`."""
    codes, zero = (_unpacked(tensors[name]).T.contiguous() for name in ("qweight", "qzeros"))
    return Groups(codes, tensors["scales"].T.float(), zero.float(), BITS)


def config(group: int) -> dict[str, Any]:
    """`quantization_config` of config.json."""
    return {"quant_method": "awq", "bits": BITS, "group_size": group, "zero_point": True, "version": "gemm"}


def _packed(rows: Tensor) -> Tensor:
    return pack(rows.unflatten(-1, (-1, 8))[..., list(ORDER)].flatten(-2), BITS)


def _unpacked(words: Tensor) -> Tensor:
    places = torch.tensor(ORDER).argsort()
    return unpack(words, BITS).unflatten(-1, (-1, 8))[..., places].flatten(-2)

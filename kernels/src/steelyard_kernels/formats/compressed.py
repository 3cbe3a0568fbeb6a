"""Compressed-tensors checkpoints, which vLLM loads: what a linear's weight becomes, and the config that says so.

Every linear of the layers is quantized; embeddings, norms and the head stay as they are. Names, shapes and bit orders are those of
the library; `weight_scale` has the checkpoint's type (bf16). The integer codes may come from any quantizer (`codes`): round to
nearest by default, or GPTQ. Linears that an engine fuses share NVFP4's global scale. Group sizes must divide every linear's inputs:
SmolLM2's 576 takes 64 or 32, never 128.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from steelyard_kernels.model.gguf import Checkpoint
from steelyard_kernels.quant import fp4
from steelyard_kernels.quant.fp8 import quantize_fp8
from steelyard_kernels.quant.groups import Groups, pack, quantize_groups

Codes = Callable[[str, Tensor], Groups]
FUSED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))


class Scheme(NamedTuple):
    """A format's name in the library, and its arguments for weights and for inputs (None: inputs stay in 16 bits)."""

    format: str
    weights: dict[str, Any]
    inputs: dict[str, Any] | None = None


def _arguments(bits: int, kind: str, strategy: str, **more: Any) -> dict[str, Any]:
    return {"num_bits": bits, "type": kind, "symmetric": True, "strategy": strategy, "dynamic": False, **more}


def scheme(name: str, group: int = 64) -> Scheme:
    """One of w4a16, w8a8, fp8, nvfp4a16 and mxfp4a16; `group` is the size of w4a16's groups."""
    by_token = {"dynamic": True}
    schemes = {
        "w4a16": Scheme("pack-quantized", _arguments(4, "int", "group", group_size=group)),
        "w8a8": Scheme("int-quantized", _arguments(8, "int", "channel"), _arguments(8, "int", "token") | by_token),
        "fp8": Scheme("float-quantized", _arguments(8, "float", "channel"), _arguments(8, "float", "token") | by_token),
        "nvfp4a16": Scheme(
            "nvfp4-pack-quantized",
            _arguments(4, "float", "tensor_group", group_size=fp4.NV_BLOCK, scale_dtype="torch.float8_e4m3fn"),
        ),
        "mxfp4a16": Scheme(
            "mxfp4-pack-quantized", _arguments(4, "float", "group", group_size=fp4.MX_BLOCK, scale_dtype="torch.uint8")
        ),
    }
    if name not in schemes:
        raise ValueError(f"there is no scheme {name!r}; there are {', '.join(schemes)}")
    return schemes[name]


def compress(checkpoint: Checkpoint, name: str, group: int = 64, codes: Codes | None = None) -> Checkpoint:
    """The checkpoint in a scheme; write it with `model.gguf.write`. `codes` replaces rounding for w4a16."""
    chosen = scheme(name, group)
    choose = codes or (lambda _, weight: quantize_groups(weight, 4, group))
    tensors: dict[str, Tensor] = {}
    for key, tensor in checkpoint.tensors.items():
        linear = key.removesuffix(".weight")
        if not linear.endswith("_proj"):
            tensors[key] = tensor
            continue
        _check(linear, tensor)
        for part, value in _parts(name, linear, checkpoint.tensors, choose).items():
            tensors[f"{linear}.{part}"] = value.contiguous()
    return checkpoint._replace(config={**checkpoint.config, "quantization_config": config(chosen)}, tensors=tensors)


def config(chosen: Scheme) -> dict[str, Any]:
    """`quantization_config` of config.json."""
    group = {
        "targets": ["Linear"],
        "weights": chosen.weights,
        "input_activations": chosen.inputs,
        "output_activations": None,
        "format": chosen.format,
    }
    return {
        "quant_method": "compressed-tensors",
        "format": chosen.format,
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
        "kv_cache_scheme": None,
    }


def _parts(name: str, linear: str, tensors: Mapping[str, Tensor], choose: Codes) -> dict[str, Tensor]:
    weight = tensors[f"{linear}.weight"]
    if name == "w4a16":
        found = choose(linear, weight)
        shape = torch.tensor(weight.shape, dtype=torch.int64)
        return {"weight_packed": pack(found.codes, 4), "weight_scale": found.scale.bfloat16(), "weight_shape": shape}
    if name == "w8a8":
        rows = quantize_groups(weight, 8, weight.shape[1])
        return {"weight": (rows.codes.to(torch.int16) - 128).to(torch.int8), "weight_scale": rows.scale.bfloat16()}
    if name == "fp8":
        quantized = quantize_fp8(weight, "row")
        return {"weight": quantized.codes, "weight_scale": quantized.scale.bfloat16()}
    if name == "mxfp4a16":
        blocks = fp4.quantize_mxfp4(weight)
        return {"weight_packed": blocks.packed, "weight_scale": blocks.scale}
    blocks = fp4.quantize_nvfp4(weight, fp4.global_scale(*_fused_with(linear, tensors)))
    return {
        "weight_packed": blocks.packed,
        "weight_scale": blocks.scale,
        "weight_global_scale": blocks.global_scale.clone(),
    }


def _fused_with(linear: str, tensors: Mapping[str, Tensor]) -> list[Tensor]:
    """The weights that an engine holds in one tensor with this one, itself among them."""
    block, _, part = linear.rpartition(".")
    together = next((parts for parts in FUSED if part in parts), (part,))
    return [tensors[f"{block}.{one}.weight"] for one in together]


def _check(linear: str, weight: Tensor) -> None:
    if not torch.isfinite(weight.float()).all():
        raise ValueError(f"{linear}.weight has values that are not finite; the checkpoint is damaged")

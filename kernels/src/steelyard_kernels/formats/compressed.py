"""Compressed-tensors checkpoints, which vLLM loads: what a linear's weight becomes, and the config that says so.

Every linear of the layers is quantized; embeddings, norms and the head stay as they are. Names, shapes and bit orders are those of
the library; `weight_scale` has the checkpoint's type (bf16). The integer codes may come from any quantizer (`codes`): round to
nearest by default, or GPTQ. Linears that an engine fuses share NVFP4's global scale. Group sizes must divide every linear's inputs:
SmolLM2's 576 takes 64 or 32, never 128.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from steelyard_kernels.quant import fp4
from steelyard_kernels.quant.fp4 import Fp4
from steelyard_kernels.quant.fp8 import Fp8, quantize_fp8
from steelyard_kernels.quant.groups import Groups, pack, quantize_groups

if TYPE_CHECKING:  # vLLM's environment, which reads these formats too, has no GGUF reader
    from steelyard_kernels.model.gguf import Checkpoint

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
    """One of w4a16, w8a8, fp8, fp8a16, nvfp4, nvfp4a16 and mxfp4a16; `group` is the size of w4a16's groups."""
    by_token = {"dynamic": True}
    nv = _arguments(4, "float", "tensor_group", group_size=fp4.NV_BLOCK, scale_dtype="torch.float8_e4m3fn")
    schemes = {
        "w4a16": Scheme("pack-quantized", _arguments(4, "int", "group", group_size=group)),
        "w8a8": Scheme("int-quantized", _arguments(8, "int", "channel"), _arguments(8, "int", "token") | by_token),
        "fp8": Scheme("float-quantized", _arguments(8, "float", "channel"), _arguments(8, "float", "token") | by_token),
        "fp8a16": Scheme("float-quantized", _arguments(8, "float", "channel")),
        "nvfp4": Scheme("nvfp4-pack-quantized", nv, nv | {"dynamic": "local"}),
        "nvfp4a16": Scheme("nvfp4-pack-quantized", nv),
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
    choose = codes or (lambda _, weight: quantize_groups(weight, 4, group, kept=torch.bfloat16))
    tensors: dict[str, Tensor] = {}
    for key, tensor in checkpoint.tensors.items():
        linear = key.removesuffix(".weight")
        if not linear.endswith("_proj"):
            tensors[key] = tensor
            continue
        _check(linear, tensor)
        for part, value in tensors_of(_codes(name, linear, checkpoint.tensors, choose)).items():
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


def tensors_of(codes: Groups | Fp8 | Fp4, input_scale: Tensor | None = None) -> dict[str, Tensor]:
    """What a linear's codes are called in a file. `input_scale` [1] is NVFP4's global scale of the inputs, for W4A4."""
    if isinstance(codes, Fp8):
        return {"weight": codes.codes, "weight_scale": codes.scale.bfloat16()}
    if isinstance(codes, Fp4):
        found = {"weight_packed": codes.packed, "weight_scale": codes.scale}
        if codes.scale.dtype != torch.uint8:
            found["weight_global_scale"] = codes.global_scale.clone()  # a file takes no two tensors of one memory
        if input_scale is not None:
            found["input_global_scale"] = input_scale.clone()
        return found
    if codes.bits == 8:
        return {"weight": (codes.codes.to(torch.int16) - 128).to(torch.int8), "weight_scale": codes.scale.bfloat16()}
    shape = torch.tensor(codes.codes.shape, dtype=torch.int64)
    packed = pack(codes.codes, codes.bits)
    return {"weight_packed": packed, "weight_scale": codes.scale.bfloat16(), "weight_shape": shape}


def _codes(name: str, linear: str, tensors: Mapping[str, Tensor], choose: Codes) -> Groups | Fp8 | Fp4:
    weight = tensors[f"{linear}.weight"]
    if name == "w4a16":
        return choose(linear, weight)
    if name == "w8a8":
        return quantize_groups(weight, 8, weight.shape[1], kept=torch.bfloat16)
    if name == "fp8":
        return quantize_fp8(weight, "row", kept=torch.bfloat16)
    if name == "mxfp4a16":
        return fp4.quantize_mxfp4(weight)
    return fp4.quantize_nvfp4(weight, fp4.global_scale(*_fused_with(linear, tensors)))


def _fused_with(linear: str, tensors: Mapping[str, Tensor]) -> list[Tensor]:
    """The weights that an engine holds in one tensor with this one, itself among them."""
    block, _, part = linear.rpartition(".")
    together = next((parts for parts in FUSED if part in parts), (part,))
    return [tensors[f"{block}.{one}.weight"] for one in together]


def _check(linear: str, weight: Tensor) -> None:
    if not torch.isfinite(weight.float()).all():
        raise ValueError(f"{linear}.weight has values that are not finite; the checkpoint is damaged")

"""Every checkpoint of `steelyard-quantize` is loaded by vLLM itself, and its layers compute what the codes mean."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from compressed_tensors.compressors.base import BaseCompressor
from compressed_tensors.quantization import QuantizationConfig
from safetensors.torch import load_file
from torch import Tensor

from steelyard_kernels.formats import awq, bitsandbytes, gptq, ternary
from steelyard_kernels.quant.groups import Groups, quantize_groups, unpack
from steelyard_kernels.quant.nf4 import Nf4
from steelyard_kernels.vllm_plugin import DISABLED, NEED_AVX512
from vllm_checkpoints import folder, quantization

QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
# How far a layer's output may be from the dequantized weight's: inputs rounded to 8 or 4 bits, bf16 arithmetic, or exact.
FORMATS = {
    "int4-gptq-ct": 1e-5,
    "mxfp4": 1e-5,
    "nf4": 1e-5,
    "int4-gptq": 1e-2,
    "int4-awq": 1e-2,
    "int8": 3e-2,
    "fp8": 4e-2,
    "ternary": 3e-2,
    "nvfp4": 1.5e-1,
    "nvfp4-rotated": 1.5e-1,
}


def meaning(name: str, linear: str) -> Tensor:
    """The weight [outputs, inputs] that a linear's tensors stand for, by the library or our own reader."""
    parts: dict[str, Tensor] = {}
    for file in folder(name).glob("*.safetensors"):
        for key, value in load_file(file).items():
            if key.startswith(f"{linear}."):
                parts[key.removeprefix(f"{linear}.")] = value
    config = quantization(name)
    if config.get("format") == "pack-quantized":  # the library would multiply in bf16
        scale = parts["weight_scale"].float()
        return Groups(unpack(parts["weight_packed"], 4), scale, torch.full_like(scale, 8), 4).dequantize()
    if config["quant_method"] == "compressed-tensors":
        group = QuantizationConfig.model_validate(config).config_groups["group_0"]
        return BaseCompressor.get_value_from_registry(config["format"]).decompress(parts, group)["weight"].float()
    if config["quant_method"] == bitsandbytes.METHOD:
        rows, inputs = json.loads(bytes(parts["weight.quant_state.bitsandbytes__nf4"].tolist()))["shape"]
        return Nf4(parts["weight"].view(rows, inputs // 2), parts["weight.absmax"].view(rows, -1)).dequantize()
    if config["quant_method"] == ternary.METHOD:
        return ternary.values_of(parts["weight_packed"]) * parts["weight_scale"]
    return (gptq.codes_of(parts, 4) if config["quant_method"] == "gptq" else awq.codes_of(parts)).dequantize()


@pytest.mark.parametrize("name", FORMATS)
def test_a_layer_computes_what_its_codes_mean(
    name: str, load: Callable[..., tuple[Any, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        DISABLED, ",".join(NEED_AVX512)
    )  # also where the build has its own 4-bit product, ours is tested
    config, model = load(name)
    assert_means_the_codes(name, config, model, FORMATS[name])


@pytest.mark.parametrize("name", ["int4-gptq-ct", "int4-gptq", "int4-awq"])
def test_vllms_own_kernel_reads_the_same_codes(
    name: str, load: Callable[..., tuple[Any, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not hasattr(torch.ops._C, "cpu_gemm_wna16"):
        pytest.skip("this processor has no AVX512, so vLLM has no 4-bit product here")
    monkeypatch.delenv(DISABLED, raising=False)
    config, model = load(name, torch.bfloat16)
    assert_means_the_codes(name, config, model, 2e-2)


def assert_means_the_codes(name: str, config: Any, model: Any, bound: float) -> None:
    """A fused and a plain linear of the second layer, on random inputs."""
    layer = model.model.layers[1]
    for module, linears in ((layer.self_attn.qkv_proj, QKV), (layer.mlp.down_proj, ("mlp.down_proj",))):
        weight = torch.cat([meaning(name, f"model.layers.1.{linear}") for linear in linears])
        x = torch.randn(7, weight.shape[1], generator=torch.Generator().manual_seed(5)).to(config.model_config.dtype)
        with torch.no_grad():
            out = module(x)
        out = (out[0] if isinstance(out, tuple) else out).float()
        expected = x.float() @ weight.T
        assert out.shape == expected.shape
        error = ((out - expected).norm() / expected.norm()).item()
        assert error < bound, f"{name} {linears}: relative error {error:.2e}"


@pytest.mark.parametrize(("outputs", "inputs", "group"), [(64, 128, 32), (24, 192, 64), (8, 64, 64)])
def test_packings_are_those_of_vllm(outputs: int, inputs: int, group: int, distributed: None) -> None:
    from vllm.model_executor.layers.quantization.utils.quant_utils import awq_pack, gptq_pack

    weight = torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(3))
    around, shifted = quantize_groups(weight, 4, group), quantize_groups(weight, 4, group, symmetric=False)
    rows, groups = around.codes.T.contiguous().int(), inputs // group
    assert torch.equal(gptq.tensors_of(around)["qweight"], gptq_pack(rows, 4, inputs, outputs))
    ours = awq.tensors_of(shifted)
    assert torch.equal(ours["qweight"], awq_pack(shifted.codes.T.contiguous().int(), 4, inputs, outputs))
    assert torch.equal(ours["qzeros"], awq_pack(shifted.zero.T.contiguous().int(), 4, groups, outputs))


def test_registering_twice_changes_nothing(distributed: None) -> None:
    from vllm.model_executor.kernels import linear
    from vllm.platforms.interface import PlatformEnum

    from steelyard_kernels.vllm_plugin import register

    tables = (linear._POSSIBLE_KERNELS, linear._POSSIBLE_NVFP4_KERNELS, linear._POSSIBLE_MXFP4_KERNELS)
    before = [list(table[PlatformEnum.CPU]) for table in tables]
    register()
    assert [list(table[PlatformEnum.CPU]) for table in tables] == before

"""What is written is read by compressed-tensors itself, and means what our codes mean."""

import json
from pathlib import Path

import pytest
import torch
from compressed_tensors.compressors.base import BaseCompressor
from compressed_tensors.quantization import QuantizationConfig
from safetensors.torch import load_file

from steelyard_kernels.formats.compressed import compress, scheme
from steelyard_kernels.model import gguf
from steelyard_kernels.quant import fp4
from steelyard_kernels.quant.fp8 import quantize_fp8
from steelyard_kernels.quant.gptq import quantize_gptq
from steelyard_kernels.quant.groups import quantize_groups

LAYER = "model.layers.1"
LINEARS = (f"{LAYER}.self_attn.k_proj", f"{LAYER}.mlp.up_proj")
SCHEMES = ["w4a16", "w8a8", "fp8", "nvfp4a16", "mxfp4a16"]


@pytest.fixture(scope="module")
def small(checkpoint: gguf.Checkpoint) -> gguf.Checkpoint:
    """Two layers of SmolLM2."""
    kept = {
        name: tensor
        for name, tensor in checkpoint.tensors.items()
        if ".layers." not in name or int(name.split(".")[2]) < 2
    }
    return checkpoint._replace(config={**checkpoint.config, "num_hidden_layers": 2}, tensors=kept)


def meaning(name: str, linear: str, small: gguf.Checkpoint) -> torch.Tensor:
    """What our codes stand for, with scales in the checkpoint's type."""
    weight = small.tensors[f"{linear}.weight"]
    if name in ("w4a16", "w8a8"):
        size = 64 if name == "w4a16" else weight.shape[1]
        return quantize_groups(weight, int(name[1]), size, kept=torch.bfloat16).dequantize()
    if name == "fp8":
        return quantize_fp8(weight, "row", kept=torch.bfloat16).dequantize()
    if name == "mxfp4a16":
        return fp4.quantize_mxfp4(weight).dequantize()
    block, part = linear.rsplit(".", 1)
    fused = {"k_proj": ("q_proj", "k_proj", "v_proj"), "up_proj": ("gate_proj", "up_proj")}[part]
    return fp4.quantize_nvfp4(
        weight, fp4.global_scale(*(small.tensors[f"{block}.{one}.weight"] for one in fused))
    ).dequantize()


@pytest.mark.parametrize("name", SCHEMES)
def test_the_library_reads_what_was_written(name: str, small: gguf.Checkpoint, tmp_path: Path) -> None:
    gguf.write(compress(small, name), tmp_path / name)
    tensors = load_file(tmp_path / name / "model.safetensors")
    written = json.loads((tmp_path / name / "config.json").read_text())["quantization_config"]
    read = QuantizationConfig.model_validate({**written, "quant_method": "compressed-tensors"})
    group = read.config_groups["group_0"]
    compressor = BaseCompressor.get_value_from_registry(written["format"])
    for linear in LINEARS:
        state = {
            key.removeprefix(f"{linear}."): value for key, value in tensors.items() if key.startswith(f"{linear}.")
        }
        theirs = compressor.decompress(state, group)["weight"].float()
        # The library multiplies in the scale's type, bf16: a rounding of 2^-8 more than ours.
        torch.testing.assert_close(theirs, meaning(name, linear, small), rtol=2**-7, atol=1e-6)
    assert torch.equal(tensors["model.norm.weight"], small.tensors["model.norm.weight"])


def test_fused_linears_share_one_global_scale(small: gguf.Checkpoint) -> None:
    tensors = compress(small, "nvfp4a16").tensors
    for block, parts in ((f"{LAYER}.self_attn", "qkv"), (f"{LAYER}.mlp", ("gate", "up"))):
        assert len({tensors[f"{block}.{part}_proj.weight_global_scale"].item() for part in parts}) == 1


def test_codes_may_come_from_gptq(small: gguf.Checkpoint) -> None:
    seen = []

    def codes(linear: str, weight: torch.Tensor):
        seen.append(linear)
        if linear != LINEARS[0]:
            return quantize_groups(weight, 4, 64, kept=torch.bfloat16)
        return quantize_gptq(weight, torch.eye(weight.shape[1]) + 0.5, 4, 64)

    ours, rounded = compress(small, "w4a16", codes=codes), compress(small, "w4a16")
    assert len(seen) == 14
    assert not torch.equal(ours.tensors[f"{LINEARS[0]}.weight_packed"], rounded.tensors[f"{LINEARS[0]}.weight_packed"])
    assert torch.equal(ours.tensors[f"{LINEARS[1]}.weight_packed"], rounded.tensors[f"{LINEARS[1]}.weight_packed"])


def test_four_bits_take_little_more_than_a_quarter(small: gguf.Checkpoint) -> None:
    tensors = compress(small, "w4a16").tensors
    size = sum(value.nbytes for key, value in tensors.items() if key.startswith(f"{LINEARS[1]}."))
    assert 0.25 < size / small.tensors[f"{LINEARS[1]}.weight"].nbytes < 0.28


def test_refusals_name_what_is_wrong(small: gguf.Checkpoint) -> None:
    with pytest.raises(ValueError, match="no scheme 'int3'; there are w4a16"):
        scheme("int3")
    with pytest.raises(ValueError, match="group is 128, which does not divide the weight's 576 inputs"):
        compress(small, "w4a16", group=128)
    broken = dict(small.tensors)
    broken[f"{LINEARS[0]}.weight"] = torch.full_like(broken[f"{LINEARS[0]}.weight"], torch.nan)
    with pytest.raises(ValueError, match=r"k_proj\.weight has values that are not finite"):
        compress(small._replace(tensors=broken), "fp8")

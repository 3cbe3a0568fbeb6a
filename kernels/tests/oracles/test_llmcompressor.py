"""steelyard-quantize against llmcompressor on the first layers of SmolLM2: the same files, and no more harm.

Both get the same windows of text. Harm is the Kullback-Leibler divergence of the next token, in nats, on windows that neither saw.
"""

import json
import os
from dataclasses import replace
from pathlib import Path

import bitsandbytes
import pytest
import torch
import torch.nn.functional as F
from compressed_tensors.compressors.base import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig
from datasets import Dataset
from llmcompressor import oneshot
from llmcompressor.modifiers.gptq import GPTQModifier
from llmcompressor.modifiers.gptq.gptq_quantize import quantize_weight
from llmcompressor.modifiers.quantization import QuantizationModifier
from llmcompressor.modifiers.transform.awq import AWQModifier
from llmcompressor.modifiers.transform.smoothquant import SmoothQuantModifier
from llmcompressor.pipelines.cache import IntermediatesCache
from make_checkpoints import LAYERS, first_layers
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from steelyard_kernels.formats import awq
from steelyard_kernels.model import gguf
from steelyard_kernels.model.llama import Llama
from steelyard_kernels.quant.gptq import output_error, quantize_gptq
from steelyard_kernels.quant.groups import quantize_groups
from steelyard_kernels.quant.nf4 import BLOCK, quantize_nf4
from steelyard_kernels.quantize import text
from steelyard_kernels.quantize.recipe import Recipe, of
from steelyard_kernels.quantize.run import Job, quantize
from steelyard_kernels.quantize.source import LINEARS

SAMPLES, TOKENS, JUDGED = 24, 128, 8
ROOM = 1.05  # what ours may do more harm, by chance


@pytest.fixture(autouse=True)
def nothing_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their AWQ pins what it keeps, for a device that is not here, and torch refuses."""
    monkeypatch.setattr(IntermediatesCache, "_pin_intermediate", classmethod(lambda cls, value: None))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("llmcompressor") / "first"
    gguf.write(first_layers(gguf.read(Path(os.environ["STEELYARD_GGUF"])), LAYERS), folder)
    return folder


@pytest.fixture(scope="module")
def windows(source: Path) -> text.Windows:
    return text.windows(text.tokenizer_of(source), None, None, SAMPLES, TOKENS, JUDGED)


def tensors_in(folder: Path) -> dict[str, Tensor]:
    return {name: tensor for file in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(file).items()}


def meaning(folder: Path) -> dict[str, Tensor]:
    """The weights that a checkpoint stands for, [fp32]."""
    tensors, config = tensors_in(folder), json.loads((folder / "config.json").read_text())["quantization_config"]
    for linear in (f"model.layers.{layer}.{name}" for layer in range(LAYERS) for name in LINEARS):
        parts = {
            key.removeprefix(f"{linear}."): tensors.pop(key) for key in list(tensors) if key.startswith(f"{linear}.")
        }
        if config["quant_method"] == "awq":
            tensors[f"{linear}.weight"] = awq.codes_of(parts).dequantize()
            continue
        if parts["weight_scale"].dtype == torch.bfloat16:  # the library would multiply in this type and round once more
            parts["weight_scale"] = parts["weight_scale"].float()
        group = QuantizationConfig.model_validate(config).config_groups["group_0"]
        compressor = BaseCompressor.get_value_from_registry(config["format"])
        tensors[f"{linear}.weight"] = compressor.decompress(parts, group)["weight"].float()
    return tensors


def theirs(source: Path, target: Path, windows: text.Windows, recipe: list) -> Path:
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    rows = [{"input_ids": ids, "attention_mask": [1] * len(ids)} for ids in windows.calibration.tolist()]
    oneshot(
        model=model, dataset=Dataset.from_list(rows), recipe=recipe, max_seq_length=TOKENS, num_calibration_samples=SAMPLES,
        shuffle_calibration_samples=False,
    )  # fmt: skip
    model.save_pretrained(target, save_compressed=True)
    return target


def ours(source: Path, target: Path, recipe: Recipe) -> Path:
    quantize(Job(source, target, replace(recipe, samples=SAMPLES, tokens=TOKENS), judged=JUDGED))
    return target


def harm(source: Path, folder: Path, windows: text.Windows) -> float:
    config = json.loads((source / "config.json").read_text())
    right, wrong = Llama(config, tensors_in(source)), Llama(config, meaning(folder))
    with torch.no_grad():
        pairs = [(right.forward(ids).log_softmax(-1), wrong.forward(ids).log_softmax(-1)) for ids in windows.evaluation]
    return float(torch.stack([F.kl_div(q, p, log_target=True, reduction="batchmean") for p, q in pairs]).mean())


INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 64}
EIGHT = {"num_bits": 8, "symmetric": True}


def group(weights: dict, inputs: dict | None = None) -> dict:
    return {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": inputs}}


GPTQ = GPTQModifier(config_groups=group({**INT4, "symmetric": True, "actorder": "static"}), ignore=["lm_head"])
AWQ = (AWQModifier(), QuantizationModifier(config_groups=group({**INT4, "symmetric": False}), ignore=["lm_head"]))
INT8 = (SmoothQuantModifier(smoothing_strength=0.5), QuantizationModifier(scheme="W8A8", ignore=["lm_head"]))
FP8 = QuantizationModifier(scheme="FP8_DYNAMIC", ignore=["lm_head"])


@pytest.mark.parametrize(
    ("recipe", "modifiers", "same_files"),
    [
        (of({"weights": "int4-gptq", "layout": "compressed-tensors", "group": 64}, "here"), [GPTQ], True),
        (of({"weights": "int4-awq", "group": 64}, "here"), [*AWQ], False),  # ours writes AWQ's own layout
        (of({"weights": "int8"}, "here"), [*INT8], True),
        (of({"weights": "fp8"}, "here"), [FP8], True),
    ],
    ids=["gptq", "awq", "smoothquant int8", "fp8"],
)
def test_ours_writes_the_same_files_and_does_no_more_harm(
    recipe: Recipe, modifiers: list, same_files: bool, source: Path, windows: text.Windows, tmp_path: Path
) -> None:
    their, our = theirs(source, tmp_path / "theirs", windows, modifiers), ours(source, tmp_path / "ours", recipe)
    if same_files:
        written = tensors_in(our)
        for name, tensor in tensors_in(their).items():
            if "proj." in name:
                assert written[name].shape == tensor.shape, name
                assert written[name].dtype == tensor.dtype or "scale" in name, name  # theirs stay in the model's fp32
        formats = [json.loads((one / "config.json").read_text())["quantization_config"] for one in (their, our)]
        assert formats[0]["format"] == formats[1]["format"]
    harms = {name: harm(source, folder, windows) for name, folder in (("theirs", their), ("ours", our))}
    print(recipe.weights, harms)
    assert harms["ours"] <= harms["theirs"] * ROOM, harms


@pytest.mark.parametrize(("outputs", "inputs", "size"), [(24, 128, 32), (40, 192, 64), (16, 64, 64)])
def test_gptq_rounds_as_llmcompressor_does(outputs: int, inputs: int, size: int) -> None:
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(900, inputs // 2, generator=generator) @ torch.randn(inputs // 2, inputs, generator=generator)
    weight = torch.randn(outputs, inputs, generator=generator)
    hessian = x.T @ x
    arguments = QuantizationArgs(num_bits=4, symmetric=True, strategy="group", group_size=size, actorder="static")
    plain = quantize_groups(weight, 4, size)
    rounded, _, fallback = quantize_weight(
        weight[None].clone(),
        hessian[None].clone(),
        plain.scale[None],
        torch.zeros_like(plain.scale)[None],
        None,
        arguments,
    )
    assert not fallback.any()
    our = quantize_gptq(weight, hessian, 4, size, by_activation=True).dequantize()
    # fp32 against our fp64: a code may differ where a value lies between two, and then its row goes on differently.
    assert ((our - rounded[0]).abs() < 1e-4).float().mean() > 0.98
    assert output_error(weight, our, hessian) <= output_error(weight, rounded[0], hessian) * 1.01


@pytest.mark.parametrize(("outputs", "inputs"), [(8, 64), (33, 128), (20, 576)])
def test_nf4_is_that_of_bitsandbytes_bit_for_bit(outputs: int, inputs: int) -> None:
    weight = torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(7))
    packed, state = bitsandbytes.functional.quantize_4bit(
        weight, blocksize=BLOCK, quant_type="nf4", compress_statistics=False
    )
    found = quantize_nf4(weight)
    assert torch.equal(found.packed.flatten(), packed.flatten())
    assert torch.equal(found.largest.flatten(), state.absmax.flatten())
    torch.testing.assert_close(found.dequantize(), bitsandbytes.functional.dequantize_4bit(packed, state))

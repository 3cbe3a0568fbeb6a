"""Model shapes: counted weights against what the makers state, KV against what engines report, and files that say too little."""

from __future__ import annotations

from typing import Any

import pytest
from steelyard.catalog import configs
from steelyard.catalog.configs import ConfigError
from steelyard.catalog.models import MODELS, Model, known
from steelyard.catalog.shapes import Kind

LLAMA: dict[str, Any] = {
    "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32,
    "num_key_value_heads": 8, "vocab_size": 128256,
}  # fmt: skip


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_counted_weights_are_the_published_ones(model: Model) -> None:
    assert model.shape.parameters == pytest.approx(model.published, rel=0.01)
    assert model.shape.active < model.shape.parameters


@pytest.mark.parametrize(
    ("name", "bytes_per_token", "because"),
    [
        ("HuggingFaceTB/SmolLM2-135M", 23_040, "30 layers · 2 · 3 heads · 64, as measured in vLLM"),
        ("meta-llama/Llama-3.1-8B", 131_072, "32 layers · 2 · 8 heads · 128"),
        ("deepseek-ai/DeepSeek-V3", 70_272, "61 layers · 576: the latent is shared by all heads"),
        ("facebook/opt-66b", 2_359_296, "DistServe: 512 tokens of OPT-66B hold 1.13 GiB"),
        ("Qwen/Qwen3.5-397B-A17B", 30_720, "a quarter of the layers keep anything that grows"),
    ],
)
def test_kv_of_a_token_in_16_bits(name: str, bytes_per_token: int, because: str) -> None:
    assert MODELS[name].shape.kv_values * 2 == bytes_per_token, because


def test_a_window_bounds_what_is_kept() -> None:
    shape = MODELS["openai/gpt-oss-120b"].shape
    assert [group.kind for group in shape.attention] == [Kind.SLIDING, Kind.FULL]
    per_layer = 2 * 8 * 64
    assert shape.kv_held(100) == 36 * per_layer * 100
    assert shape.kv_held(10_000) == 18 * per_layer * 10_000 + 18 * per_layer * 128


def test_a_linear_layer_keeps_a_fixed_state() -> None:
    shape = MODELS["Qwen/Qwen3.5-397B-A17B"].shape
    state = 64 * 128 * 128 + 3 * (2 * 16 * 128 + 64 * 128)
    assert shape.kv_held(1000) - shape.kv_held(0) == shape.kv_values * 1000
    assert shape.kv_held(0) == 45 * state


def test_latent_attention_decodes_on_the_latent() -> None:
    (group,) = MODELS["deepseek-ai/DeepSeek-V3"].shape.attention
    assert group.prefill_pair == 2 * 128 * (192 + 128)
    assert group.decode_pair == 2 * 128 * (576 + 512)
    assert MODELS["deepseek-ai/DeepSeek-V3"].shape.kv_heads == (1,)


def test_experts_that_a_batch_reads() -> None:
    experts = MODELS["deepseek-ai/DeepSeek-V3"].shape.experts
    assert experts is not None
    assert experts.layers == 58  # the first three are dense
    assert experts.touched(1) == pytest.approx(8)
    assert experts.touched(16) == pytest.approx(256 * (1 - (31 / 32) ** 16))
    assert experts.touched(1e6) == pytest.approx(256)


@pytest.mark.parametrize(
    ("repository", "name", "stored"),
    [
        ("Qwen/Qwen3-32B", "Qwen/Qwen3-32B", None),
        ("Qwen/Qwen3-32B-FP8", "Qwen/Qwen3-32B", "fp8"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B", None),
        ("RedHatAI/Llama-3.1-8B-Instruct-FP8-dynamic", "meta-llama/Llama-3.1-8B", "fp8"),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8", "Qwen/Qwen3-235B-A22B", "fp8"),
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek-ai/DeepSeek-R1", "fp8"),
        ("openai/gpt-oss-20b", "openai/gpt-oss-20b", "mxfp4"),
    ],
)
def test_repositories_of_known_models(repository: str, name: str, stored: str | None) -> None:
    found = known(repository)
    assert found is not None
    assert (found[0].name, found[1]) == (name, stored)


@pytest.mark.parametrize(
    "repository", ["Qwen/Qwen3-32B-Coder", "Qwen/Qwen3-3", "org/model", "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B"]
)
def test_a_name_that_may_be_another_model_is_not_known(repository: str) -> None:
    assert known(repository) is None


@pytest.mark.parametrize(
    "missing", ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "intermediate_size"]
)
def test_a_config_that_says_too_little_is_refused_by_name(missing: str) -> None:
    with pytest.raises(ConfigError, match=missing):
        configs.read({key: value for key, value in LLAMA.items() if key != missing})


def test_experts_need_to_say_how_many_a_token_visits() -> None:
    with pytest.raises(ConfigError, match="num_experts_per_tok"):
        configs.read({**LLAMA, "num_local_experts": 8})


def test_multimodal_files_hold_the_text_model_inside() -> None:
    assert configs.read({"model_type": "x", "text_config": LLAMA}) == configs.read(LLAMA)


@pytest.mark.parametrize(
    ("stored", "name"),
    [
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "compressed-tensors", "format": "float-quantized"}, "fp8"),
        ({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}, "nvfp4"),
        ({"quant_method": "gptq", "bits": 8}, "int8"),
        ({"quant_method": "awq", "bits": 4}, "int4-awq"),
        ({"quant_method": "something"}, None),
        ({}, None),
    ],
)
def test_the_format_of_a_checkpoint(stored: dict[str, Any], name: str | None) -> None:
    assert configs.checkpoint_format({"quantization_config": stored}) == name

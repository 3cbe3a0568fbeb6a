"""Memory by part, against figures that others published or that were measured, and laws that hold for every layout."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from steelyard.api.accelerator import AcceleratorSpec
from steelyard.api.model import ModelShape
from steelyard.api.quantities import Quantity
from steelyard.catalog.accelerators import ACCELERATORS
from steelyard.catalog.formats import KV, WEIGHTS
from steelyard.catalog.models import MODELS
from steelyard.decide.feasibility.facts import shape_of
from steelyard.decide.feasibility.fit import holds, widened
from steelyard.decide.feasibility.inputs import Side
from steelyard.decide.feasibility.memory import Memory, memory, weights
from steelyard.decide.feasibility.spread import ways
from steelyard.decide.model.layout import Layout
from steelyard.decide.model.work import work

GIB, MIB = 2**30, 2**20


def side(model: str, accelerator: str = "h200", **settings: Any) -> Side:
    spec = ACCELERATORS[accelerator].spec
    return Side("decode", accelerator, spec, "vllm", None, MODELS[model].shape, **settings)


def counted(one: Side) -> Memory:
    found = memory(one)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("model", "weights", "size", "source"),
    [
        ("HuggingFaceTB/SmolLM2-135M", "none", 269_060_552, "the file that our converter writes"),
        (
            "HuggingFaceTB/SmolLM2-135M",
            "fp8",
            155.7 * MIB,
            "compressed-tensors FP8-dynamic, written and loaded by vLLM 0.32",
        ),
        ("HuggingFaceTB/SmolLM2-135M", "int8", 155.7 * MIB, "compressed-tensors W8A8, written and loaded by vLLM 0.32"),
        (
            "HuggingFaceTB/SmolLM2-135M",
            "nvfp4",
            111.1 * MIB,
            "compressed-tensors NVFP4, written and loaded by vLLM 0.32",
        ),
        ("HuggingFaceTB/SmolLM2-135M", "mxfp4", 107.9 * MIB, "compressed-tensors MXFP4A16, written"),
        ("meta-llama/Llama-3.1-8B", "none", 16_060_522_496, "8,030,261,248 weights of two bytes"),
        ("openai/gpt-oss-120b", "mxfp4", 60.8 * GIB, "OpenAI's model card: checkpoint size"),
        ("openai/gpt-oss-20b", "mxfp4", 12.8 * GIB, "OpenAI's model card: checkpoint size"),
        ("meta-llama/Llama-3.1-8B", "int4-awq", 5.73e9, "hugging-quants AWQ-INT4, unverified"),
        ("meta-llama/Llama-3.1-70B", "int4-awq", 39.77e9, "hugging-quants AWQ-INT4, unverified"),
    ],
)
def test_bytes_of_checkpoints(model: str, weights: str, size: float, source: str) -> None:
    assert work(MODELS[model].shape, weights).stored == pytest.approx(size, rel=0.01), source


def test_weights_of_one_of_four_gpus() -> None:
    """vllm-project/vllm#17327: Qwen3-30B-A3B, TP4: "Model loading took 14.2474 GiB" on each rank."""
    assert weights(side("Qwen/Qwen3-30B-A3B", layout=Layout(tensor=4))) == pytest.approx(14.2474 * GIB, rel=0.005)


def test_kv_tokens_of_a_measured_engine() -> None:
    """vLLM 0.19 on an RTX 4090 of 25,250,627,584 bytes, Llama-3.1-8B, 2,048 tokens a pass: 41,408 tokens of KV."""
    card = AcceleratorSpec(vendor="nvidia", memory=Quantity("25250627584"), memory_bandwidth=1.008e12)
    one = replace(side("meta-llama/Llama-3.1-8B", batch_tokens=2048, context=32768), hardware=card)
    assert counted(one).tokens(32768) == pytest.approx(41_408, rel=0.02)


def test_kv_tokens_that_vllm_reports_on_processors() -> None:
    """vLLM 0.32 on processors, SmolLM2-135M, `--dtype float32 --kv-cache-memory-bytes 134217728`, in blocks of 128 tokens:
    "CPU KV cache size: 2,816 tokens". Its cache then has the 32 bits of its numbers, twice what a service's has."""
    token = 2 * counted(side("HuggingFaceTB/SmolLM2-135M", context=1024)).per_token
    assert 128 * MIB // token // 128 * 128 == 2816


@pytest.mark.parametrize(("tensor", "tokens"), [(1, 66_144), (2, 163_008), (4, 356_736)])
def test_kv_tokens_of_distserves_table(tensor: int, tokens: int) -> None:
    """DistServe's memory table for OPT-13B on A100-80G; that it uses 95 % of the memory is inferred from one row."""
    one = side(
        "facebook/opt-13b", "a100", layout=Layout(tensor=tensor), context=2048, batch_tokens=2048, utilization=0.95
    )
    assert counted(one).tokens(2048) == pytest.approx(tokens, rel=0.02)


def test_parts_by_hand() -> None:
    one = counted(side("meta-llama/Llama-3.1-70B", layout=Layout(tensor=4), kv="fp8", context=8192, sequences=64))
    assert one.weights == pytest.approx(2 * 70.55e9 / 4, rel=1e-3)
    assert one.per_token == 80 * 2 * 2 * 128  # two KV heads of eight on each
    assert one.available == pytest.approx(0.9 * 141 * GIB)
    assert one.tokens(8192) == pytest.approx(one.left / one.per_token, rel=1e-3)


def test_latent_kv_is_on_every_tensor_rank_and_once_a_data_rank() -> None:
    tensor, data = (
        counted(side("deepseek-ai/DeepSeek-V3", stored="fp8", layout=layout))
        for layout in (Layout(tensor=8, expert=True), Layout(data=8, expert=True))
    )
    assert tensor.per_token == data.per_token == 61 * 576 * 2
    assert data.tokens(4096) > 5 * tensor.tokens(4096)


def test_windows_and_budgets_bound_a_sequence() -> None:
    wide = counted(side("openai/gpt-oss-120b", stored="mxfp4", context=131_072))
    assert wide.sequence(131_072) == pytest.approx(18 * 1024 * 2 * (131_072 + 128))
    kept = counted(side("Qwen/Qwen3-32B", context=131_072, kept=4096))
    assert kept.sequence(131_072) == kept.sequence(5000) == pytest.approx(4096 * 64 * 2048 * 2)


def test_lossless_compression_shrinks_matrices_only() -> None:
    plain, packed = (weights(side("Qwen/Qwen3-32B", lossless=flag)) for flag in (False, True))
    edges = 2 * 151_936 * 5120 * 2
    assert packed == pytest.approx((plain - edges) * 0.87 + edges)


sides = st.builds(
    lambda model, accelerator, stored, kv, context: side(model, accelerator, stored=stored, kv=kv, context=context),
    st.sampled_from(sorted(MODELS)),
    st.sampled_from(["a100", "h200", "b300"]),
    st.sampled_from(sorted(WEIGHTS)),
    st.sampled_from(sorted(KV)),
    st.integers(16, 131_072),
)


@given(sides, st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4]), st.sampled_from([1, 4]), st.booleans())
def test_all_weights_are_somewhere(one: Side, tensor: int, pipeline: int, data: int, expert: bool) -> None:
    """The fullest accelerator holds at least its fair share, and never more than the whole model."""
    spread = replace(one, layout=Layout(tensor, pipeline, data, expert))
    whole = work(one.shape, one.format).stored
    assert weights(spread) * spread.layout.accelerators >= whole * 0.97  # embedding and output lie on different stages
    assert weights(spread) <= whole * 1.0001


@given(sides, st.sampled_from([2, 4, 8]))
def test_more_ways_never_leave_less_for_kv(one: Side, tensor: int) -> None:
    wider = counted(replace(one, layout=Layout(tensor=tensor)))
    alone = counted(one)
    assert wider.left >= alone.left
    assert wider.tokens(one.context) >= alone.tokens(one.context)
    assert wider.per_token <= alone.per_token


@given(sides, st.integers(1, 131_072))
def test_what_is_said_to_be_held_fits(one: Side, context: int) -> None:
    found = counted(replace(one, context=context))
    assert found.sequences(context) * found.sequence(context) <= max(found.left, 0) * (1 + 1e-9)
    longest = found.longest(context)
    assert longest == 0 or found.sequence(longest) <= found.left * (1 + 1e-9)


@given(sides)
def test_a_remedy_is_one(one: Side) -> None:
    """What is named as the nearest number of ways fits, divides, and is the fewest that do."""
    found = widened(one)
    if found is None:
        return
    assert holds(found)
    possible = ways(one.shape, one.hardware.per_node)
    assert found.layout.tensor in possible
    fewer = [n for n in possible if one.layout.tensor < n < found.layout.tensor]
    assert not any(holds(replace(one, layout=replace(one.layout, tensor=n))) for n in fewer)


@pytest.mark.parametrize("rounded", [0.985, 1.0, 1.015])
def test_a_rounded_number_of_weights_takes_no_other_fact_away(rounded: float) -> None:
    """Written a little below or above what the facts add up to, latent attention, windows and states stay."""
    facts = ModelShape(
        layers=32, hidden_size=4096, attention_heads=32, kv_heads=8, head_dimension=128, intermediate_size=14336,
        vocabulary=128256, kv_rank=512, rope_dimension=64,
    )  # fmt: skip
    counted = shape_of(facts, None)
    assert counted is not None
    found = shape_of(facts.model_copy(update={"parameters": round(counted.parameters * rounded)}), None)
    assert found is not None
    assert found.attention == counted.attention
    assert found.parameters == round(counted.parameters * rounded)

"""The roofline of every kind of model on every layout: no prediction beats the hardware, and known figures by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from steelyard.catalog.accelerators import ACCELERATORS
from steelyard.catalog.formats import KV, WEIGHTS
from steelyard.catalog.models import MODELS
from steelyard.catalog.shapes import Kind
from steelyard.decide.model.layout import Layout
from steelyard.decide.model.roofline import Factors, Roofline, machine, peak_of
from steelyard.decide.model.work import work

HARDWARE = sorted(name for name, one in ACCELERATORS.items() if one.spec.memory_bandwidth)
layouts = st.builds(
    Layout, st.sampled_from([1, 2, 8, 16]), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 8, 32]), st.booleans()
)
shares = st.floats(0.05, 1.0)
factors = st.builds(Factors, shares, shares, st.floats(0, 0.01), st.floats(0, 1e-4), st.floats(0, 1e-4))
prompts = st.lists(st.integers(1, 65_536), min_size=1, max_size=8)


@st.composite
def replicas(draw: st.DrawFn) -> Roofline:
    spec = ACCELERATORS[draw(st.sampled_from(HARDWARE))].spec
    made = work(
        MODELS[draw(st.sampled_from(sorted(MODELS)))].shape,
        draw(st.sampled_from(sorted(WEIGHTS))),
        draw(st.sampled_from(sorted(KV))),
    )
    products = draw(st.sampled_from(["bf16", "fp8", "fp4", "int8"]))
    return Roofline(machine(spec, products, draw(st.sampled_from(["bf16", "fp8"]))), made, draw(layouts), draw(factors))


@given(replicas(), prompts)
def test_no_prefill_beats_the_hardware(replica: Roofline, batch: list[int]) -> None:
    assert replica.prefill_seconds(batch) >= replica.bound_prefill(batch) > 0


@given(replicas(), st.integers(1, 4096), st.integers(1, 131_072))
def test_no_decode_step_beats_the_hardware(replica: Roofline, batch: int, context: int) -> None:
    assert replica.decode_step_seconds(batch, context) >= replica.bound_decode(batch, context) > 0


@given(replicas(), prompts)
def test_prefill_never_does_more_than_the_peak(replica: Roofline, batch: list[int]) -> None:
    """By another count than the model's own: two operations a weight and token, over all accelerators of a stage."""
    operations = 2.0 * replica.work.shape.active * sum(batch)
    fastest = max(replica.machine.flops, replica.machine.attention_flops) * replica.layout.stage
    assert operations / replica.prefill_seconds(batch) <= fastest * (1 + 1e-9)


@given(replicas(), st.integers(1, 4096), st.integers(1, 131_072))
def test_decode_never_reads_more_than_the_bandwidth(replica: Roofline, batch: int, context: int) -> None:
    """By another count: each KV value once, over all accelerators of the replica."""
    kept = batch * replica.work.shape.kv_held(context) * min(replica.work.kv_bytes, 2.0)
    everything = replica.machine.bandwidth * replica.accelerators
    assert kept / replica.decode_step_seconds(batch, context) <= everything * (1 + 1e-9)


@settings(max_examples=150)
@given(replicas(), st.integers(1, 131_072), st.integers(1, 2048), st.integers(16, 8192))
def test_a_profile_is_never_faster_than_its_roofline(replica: Roofline, tokens: int, batch: int, context: int) -> None:
    batch = max(batch, replica.layout.data * replica.layout.pipeline)  # fewer leave copies without work
    profile = replica.polynomial(kv_tokens=batch * context)
    assert profile.prefill_seconds([tokens]) >= replica.prefill_seconds([tokens]) * (1 - 1e-9)
    assert profile.decode_step_seconds(batch, context) >= replica.decode_step_seconds(batch, context) * (1 - 1e-9)


@given(replicas(), prompts, st.integers(1, 65_536))
def test_more_work_takes_longer(replica: Roofline, batch: list[int], more: int) -> None:
    """One more prompt of a batch that keeps all copies busy; one more sequence."""
    if len(batch) >= replica.layout.data:
        assert replica.prefill_seconds([*batch, more]) >= replica.prefill_seconds(batch) * (1 - 1e-9)
    step = replica.decode_step_seconds(len(batch) * 64, more)
    assert replica.decode_step_seconds(len(batch) * 64 + 64, more) >= step * (1 - 1e-9)


def deepseek(**layout: int | bool) -> Roofline:
    made = work(MODELS["deepseek-ai/DeepSeek-V3"].shape, "fp8")
    return Roofline(machine(ACCELERATORS["h200"].spec, "fp8"), made, Layout(**layout), Factors(1.0, 1.0, 0.0))  # type: ignore[arg-type]


def test_latent_kv_is_copied_by_tensor_parallel_and_shared_by_data_parallel() -> None:
    """The reason for data-parallel attention: eight-way tensor parallel reads the same latent eight times."""
    wide = deepseek(tensor=8), deepseek(data=8, expert=True)
    read = [one.bound_decode(256, 8192) - one.bound_decode(256, 4096) for one in wide]
    kv = 256 * 4096 * 70_272 / 4.8e12
    assert read == pytest.approx([kv, kv / 8], rel=1e-6)


def test_a_small_batch_reads_few_experts() -> None:
    model = deepseek(tensor=8)
    experts = model.work.shape.experts
    assert experts is not None
    per_expert = experts.layers * experts.weights * model.work.expert_bytes / 8 / 4.8e12
    grown = model.decode_step_seconds(2, 1) - model.decode_step_seconds(1, 1)
    assert grown == pytest.approx(
        per_expert * (experts.touched(2) - 8), rel=0.15
    )  # the rest is the exchange of one token


def test_a_window_keeps_long_contexts_cheap() -> None:
    model = Roofline(
        machine(ACCELERATORS["h200"].spec),
        work(MODELS["openai/gpt-oss-120b"].shape, "mxfp4"),
        Layout(),
        Factors(1, 1, 0),
    )
    steps = [model.decode_step_seconds(64, context) for context in (1_000, 10_000)]
    full = next(group for group in model.work.shape.attention if group.kind is Kind.FULL)
    assert steps[1] - steps[0] == pytest.approx(64 * 9_000 * full.layers * full.kv_values * 2 / 4.8e12, rel=1e-6)


def test_stages_hold_more_but_answer_no_sooner() -> None:
    shape = MODELS["meta-llama/Llama-3.1-70B"].shape
    one, four = (
        Roofline(machine(ACCELERATORS["h200"].spec), work(shape), Layout(pipeline=p), Factors(1, 1, 0)) for p in (1, 4)
    )
    assert four.prefill_seconds([4096]) >= one.prefill_seconds([4096])
    assert four.decode_step_seconds(1, 100) == pytest.approx(one.decode_step_seconds(1, 100), rel=1e-3)
    assert four.decode_step_seconds(256, 4096) < one.decode_step_seconds(256, 4096)  # the parts' KV is read at once


def test_beyond_the_fast_links_the_network_counts() -> None:
    shape = MODELS["meta-llama/Llama-3.1-70B"].shape
    inside, outside = (
        Roofline(machine(ACCELERATORS["h200"].spec), work(shape), Layout(tensor=t), Factors(1, 1, 0)) for t in (8, 16)
    )
    assert outside.prefill_seconds([4096]) > inside.prefill_seconds([4096])


def test_a_missing_peak_is_taken_from_its_neighbour() -> None:
    rubin, a100 = ACCELERATORS["rubin"].spec.peak, ACCELERATORS["a100"].spec.peak
    assert peak_of(rubin, "bf16") == 16.7e15 / 2
    assert peak_of(a100, "fp8") == 312e12
    assert peak_of(ACCELERATORS["cpu"].spec.peak, "bf16") == 0

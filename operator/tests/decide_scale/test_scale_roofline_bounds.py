"""The roofline: by hand, and never faster than the hardware; its profile is never faster than itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from steelyard.api.accelerator import AcceleratorSpec
from steelyard.api.model import ModelShape
from steelyard.api.service import InferenceService
from steelyard.build.gateway_settings import ACCELERATOR_PRIOR
from steelyard.catalog.accelerators import ACCELERATORS
from steelyard.decide.model.roofline import Factors, Roofline, roofline
from steelyard.decide.scale.capacity import capacity
from steelyard.decide.scale.decision import Learnt
from steelyard.decide.scale.spec import scaled

KNOWN = sorted(
    name
    for name, one in ACCELERATORS.items()
    if one.spec.memory_bandwidth and (one.spec.peak.bf16 or one.spec.peak.fp32)
)
EIGHT_BILLION = ModelShape(parameters=8_000_000_000, layers=32, hidden_size=4096, attention_heads=32, kv_heads=8)


@st.composite
def models(draw: st.DrawFn) -> Roofline:
    layers, heads = draw(st.integers(1, 120)), draw(st.sampled_from([8, 16, 32, 64]))
    shape = ModelShape(
        parameters=draw(st.integers(1, 700)) * 10**9,
        layers=layers,
        hidden_size=heads * 128,
        attention_heads=heads,
        kv_heads=draw(st.sampled_from([1, 4, 8])),
    )
    return roofline(
        ACCELERATORS[draw(st.sampled_from(KNOWN))].spec,
        shape,
        accelerators=draw(st.sampled_from([1, 2, 8])),
        weight_bytes=draw(st.sampled_from([0.5, 1.0, 2.0])),
        kv_value_bytes=draw(st.sampled_from([1.0, 2.0])),
        factors=Factors(draw(st.floats(0.05, 1.0)), draw(st.floats(0.05, 1.0)), draw(st.floats(0, 0.01))),
    )


batches = st.lists(st.integers(1, 32_768), min_size=1, max_size=8)


@given(models(), batches)
def test_no_prefill_beats_the_hardware(model: Roofline, batch: list[int]) -> None:
    assert model.prefill_seconds(batch) >= model.bound_prefill(batch)


@given(models(), st.integers(1, 1024), st.integers(1, 131_072))
def test_no_decode_step_beats_the_hardware(model: Roofline, batch: int, context: int) -> None:
    assert model.decode_step_seconds(batch, context) >= model.bound_decode(batch, context)


@given(models(), st.integers(1, 131_072), st.integers(1, 512), st.integers(16, 8192))
def test_a_profile_is_never_faster_than_its_roofline(model: Roofline, tokens: int, batch: int, context: int) -> None:
    profile = model.polynomial(kv_tokens=batch * context)
    assert profile.prefill_seconds([tokens]) >= model.prefill_seconds([tokens]) * (1 - 1e-9)
    assert profile.decode_step_seconds(batch, context) >= model.decode_step_seconds(batch, context) * (1 - 1e-9)
    assert profile.transfer_seconds(tokens) == pytest.approx(model.transfer_seconds(tokens))


@given(models(), batches, st.integers(1, 32_768))
def test_more_work_takes_longer(model: Roofline, batch: list[int], more: int) -> None:
    assert model.prefill_seconds([*batch, more]) >= model.prefill_seconds(batch)
    assert model.decode_step_seconds(len(batch) + 1, more) >= model.decode_step_seconds(len(batch), more)


def test_an_eight_billion_model_on_an_h200_by_hand() -> None:
    model = roofline(ACCELERATORS["h200"].spec, EIGHT_BILLION)
    work = 2 * 8e9 * 2048 + 2 * 32 * 4096 * 2048**2
    assert model.prefill_seconds([2048]) == pytest.approx(0.002 + work / (989e12 * 0.45))
    read = 16e9 + 64 * 1000 * 131_072
    assert model.decode_step_seconds(64, 1000) == pytest.approx(0.002 + read / (4.8e12 * 0.8))
    assert model.kv_bytes_per_token == 131_072
    assert model.transfer_seconds(2048) == pytest.approx(2048 * 131_072 / 450e9)
    assert model.prefill_seconds([]) == 0


def test_two_devices_share_the_work_and_exchange_activations() -> None:
    spec = ACCELERATORS["h200"].spec
    one, two = (roofline(spec, EIGHT_BILLION, accelerators=n) for n in (1, 2))
    exchange = 2 * 32 * 1.0 * 4096 * 4096 * 2 / 450e9
    half = (one.prefill_seconds([4096]) - 0.002) / 2
    assert two.prefill_seconds([4096]) == pytest.approx(0.002 + half + exchange)


def test_a_missing_figure_is_named() -> None:
    with pytest.raises(ValueError, match="memoryBandwidth"):
        roofline(AcceleratorSpec(vendor="x"), EIGHT_BILLION)


def test_limits_and_priors_come_from_the_spec() -> None:
    service = InferenceService.read(
        {
            "metadata": {"name": "chat", "namespace": "team-a"},
            "spec": {
                "model": {
                    "uri": "oci://models/x:1",
                    "shape": {"parameters": 8_000_000_000, "layers": 32, "hiddenSize": 4096},
                },
                "engine": {"name": "simulated"},
                "accelerator": "h200",
                "prefill": {"replicas": {"min": 2, "max": 6}},
                "decode": {"replicas": {"min": 1}},
                "objectives": {"timeToFirstToken": "500ms", "attainment": 90},
                "autoscaling": {
                    "budget": {"accelerators": 9},
                    "ratio": {"min": "1:8", "max": "4:1"},
                    "roleChange": "Never",
                    "mode": "Recommend",
                },
            },
        }
    )
    asked = scaled(service, dict(ACCELERATORS))
    limits = asked.limits
    assert {role: (b.min, b.max) for role, b in limits.roles.items()} == {"prefill": (2, 6), "decode": (1, 1)}
    assert (limits.accelerators, limits.ratio_min, limits.ratio_max) == (9, 1 / 8, 4)
    assert (limits.role_change, limits.mode) == (False, "Recommend")
    assert (asked.objectives.ttft, asked.objectives.tpot, asked.objectives.attainment) == (0.5, None, 0.9)
    engine = asked.engines["prefill"]
    assert (engine.max_sequences, engine.max_batch_tokens) == (256, 8192)
    assert engine.prior.prefill_seconds([2048]) >= 2 * 8e9 * 2048 / 989e12
    plain = InferenceService.read({"metadata": {"name": "chat"}, "spec": {"model": {"uri": "oci://models/x:1"}}})
    assert scaled(plain, dict(ACCELERATORS)).engines["decode"].prior.decode_step_seconds(1, 100) > 0


# One processor core with a small model: what services without a shape have had from the first day on.
PROCESSOR = ((0.02, 0.002, 0.0), (0.03, 0.02, 0.0, 0.01))


def without_shape(engine: str, uri: str, accelerator: str, **more: Any) -> InferenceService:
    spec = {
        "model": {"uri": uri, **more.pop("model", {})},
        "engine": {"name": engine},
        "accelerator": accelerator,
        "objectives": {"timePerOutputToken": "50ms"},
        **more,
    }
    return InferenceService.read({"metadata": {"name": "chat", "namespace": "team-a"}, "spec": spec})


PAIR = {"parallelism": {"tensor": 2}}
QWEN = "hf://Qwen/Qwen3-32B"


@pytest.mark.parametrize(
    ("given", "weights", "devices", "because"),
    [
        (without_shape("vllm", QWEN, "h100", **PAIR), 65.5e9, 2, "the catalogue's model, in 16 bits"),
        (without_shape("vllm", QWEN + "-FP8", "h100", **PAIR), 32.8e9, 2, "in the format that its name tells"),
        (without_shape("sglang", QWEN, "h200"), 65.5e9, 1, "whichever engine computes"),
        (
            without_shape("vllm", QWEN, "h100", model={"shape": {"layers": 64, "hiddenSize": 5120}}, **PAIR),
            65.5e9,
            2,
            "a shape that is written in part",
        ),
    ],
)
def test_a_model_of_the_catalogue_needs_no_shape(
    given: InferenceService, weights: float, devices: int, because: str
) -> None:
    """Steps are those of its weights on that hardware, and a decode replica is planned to hold many sequences."""
    asked = scaled(given, dict(ACCELERATORS))
    engine = asked.engines["decode"]
    hardware = ACCELERATORS[given.spec.accelerator].spec
    read = weights / devices / (hardware.memory_bandwidth or 0)
    assert read <= engine.prior.decode_step_seconds(1, 1) <= 3 * read, because  # and constant parts
    assert engine.start_seconds == pytest.approx(2 + weights / 2e9, rel=0.05), because
    known = capacity(engine, Learnt(), asked.objectives)
    assert (known.admitted(1000) or 0) > 64, because


@pytest.mark.parametrize(
    ("given", "because"),
    [
        (without_shape("vllm", "hf://example-org/own-7b", "h100"), "no name of the catalogue"),
        (without_shape("vllm", "pvc://weights/own-7b", "h100"), "no name at all"),
    ],
)
def test_a_model_nobody_described_has_an_accelerators_prior(given: InferenceService, because: str) -> None:
    """Ten times slower and ten times faster than it lie what the catalogue's models take; no limit is told by it."""
    asked = scaled(given, dict(ACCELERATORS))
    engine = asked.engines["decode"]
    assert engine.prior.prefill == tuple(ACCELERATOR_PRIOR.values()), "as the gateway's"
    assert 0.004 <= engine.prior.decode_step_seconds(1, 1000) <= 0.03, because
    known = capacity(engine, Learnt(), asked.objectives)
    assert known.admitted(1000) is None
    assert known.held(1000) > 64


@pytest.mark.parametrize(
    ("given", "because"),
    [
        (without_shape("llama-cpp", "oci://steelyard/model-smollm2:0.1.2", "cpu"), "the embedded engine on cores"),
        (without_shape("simulated", QWEN, "h100"), "refused: it keeps time by a written shape"),
        (without_shape("vllm", QWEN, "cpu"), "cores have no figures"),
    ],
)
def test_cores_keep_theirs(given: InferenceService, because: str) -> None:
    engine = scaled(given, dict(ACCELERATORS)).engines["decode"]
    assert (engine.prior.prefill, engine.prior.decode) == PROCESSOR, because
    assert (engine.start_seconds, engine.guessed) == (60.0, False), because

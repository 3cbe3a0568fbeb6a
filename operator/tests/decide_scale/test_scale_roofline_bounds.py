"""The roofline: by hand, and never faster than the hardware; its profile is never faster than itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from steelyard.api.accelerator import AcceleratorSpec
from steelyard.api.model import ModelShape
from steelyard.api.service import InferenceService
from steelyard.catalog.accelerators import ACCELERATORS
from steelyard.decide.model.roofline import Factors, Roofline, roofline
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

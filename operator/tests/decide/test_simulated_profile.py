"""The roofline prior: its figures by hand, and the bounds no device can pass."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from operator_bodies import service, simulated
from steelyard.api.accelerator import Accelerator, AcceleratorSpec
from steelyard.catalog.accelerators import ACCELERATORS
from steelyard.decide.model.roofline import Factors
from steelyard.decide.profile import roofline

H200 = ACCELERATORS["h200"]


def test_eight_billion_weights_on_an_h200() -> None:
    profile = roofline(service(simulated({"cache": {"kvTokens": 100_000}})), "decode", H200)
    assert profile.bytes_per_token == 2 * 32 * 8 * 128 * 2
    weights_seconds = 16e9 / (4.8e12 * Factors().bandwidth)
    flops = 989e12 * Factors().arithmetic
    a, b, c = profile.prefill
    assert a == pytest.approx(Factors().launch_seconds + weights_seconds)
    assert b == pytest.approx(16e9 / flops)
    assert c == pytest.approx(2 * 32 * 4096 / flops)
    g0, g1, g2, g3 = profile.decode
    assert g0 == pytest.approx(a)
    assert g1 == pytest.approx(100_000 * 131_072 / (4.8e12 * Factors().bandwidth))
    assert (g2, g3) == (0, pytest.approx(b))
    assert profile.transfer_bytes_per_second == 450e9


@given(
    st.sampled_from(sorted(name for name, entry in ACCELERATORS.items() if entry.spec.peak.bf16)),
    st.integers(1, 400),
    st.integers(1, 128),
    st.integers(256, 1_000_000),
    st.integers(1, 8192),
)
def test_no_step_beats_the_hardware(name: str, billions: int, layers: int, kv_tokens: int, tokens: int) -> None:
    """Property: a pass is never faster than its arithmetic at peak, nor a step than one read of the weights."""
    spec: AcceleratorSpec = ACCELERATORS[name].spec
    shape = {"parameters": billions * 10**9, "layers": layers, "hiddenSize": 4096}
    of = service(simulated({"model": {"shape": shape}, "cache": {"kvTokens": kv_tokens}}))
    profile = roofline(of, "prefill", ACCELERATORS[name])
    a, b, c = profile.prefill
    assert a + b * tokens + c * tokens**2 >= 2e9 * billions * tokens / (spec.peak.bf16 or 0)
    assert profile.decode[0] >= 2e9 * billions / (spec.memory_bandwidth or 0)


def test_missing_figures_are_refused() -> None:
    with pytest.raises(ValueError, match="memoryBandwidth"):
        roofline(service(simulated()), "decode", Accelerator(metadata=H200.metadata, spec=AcceleratorSpec(vendor="x")))


def test_half_the_bytes_and_twice_the_accelerators_each_make_steps_faster() -> None:
    """A simulated replica keeps the time of its number formats and of all of its accelerators."""
    plain = roofline(service(simulated()), "decode", H200)
    formats = {"quantization": {"weights": "fp8", "kvCache": "fp8"}}
    small = roofline(service(simulated(formats)), "decode", H200)
    assert small.bytes_per_token == pytest.approx(plain.bytes_per_token / 2, rel=0.05)
    assert small.decode[0] < plain.decode[0]
    assert small.startup_seconds < plain.startup_seconds
    wide = roofline(service(simulated({"decode": {"parallelism": {"tensor": 4}}})), "decode", H200)
    assert wide.decode[0] < plain.decode[0]
    assert wide.prefill[1] < plain.prefill[1]

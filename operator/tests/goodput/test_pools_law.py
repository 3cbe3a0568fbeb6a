"""What pools serve: the queueing formulas by hand, and the laws that hold for every load."""

from __future__ import annotations

from math import exp, factorial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from steelyard.decide.feasibility.inputs import Targets
from steelyard.decide.goodput import pools
from steelyard.decide.goodput.pools import Engine
from steelyard.decide.goodput.workload import Workload
from steelyard.decide.model.latency import Polynomial

MODEL = Polynomial((0.01, 8e-5, 0.0), (0.012, 0.015, 0.0, 1e-4), 400_000)
ENGINE = Engine(MODEL, 400_000)
loads = st.builds(Workload.of_means, st.floats(0.1, 200), st.floats(50, 8000), st.floats(5, 1500), st.floats(0, 1))


def test_erlang_by_hand() -> None:
    assert pools.erlang(1, 0.6) == pytest.approx(0.6)
    a, c = 3.0, 4
    top = a**c / factorial(c) * c / (c - a)
    assert pools.erlang(c, a) == pytest.approx(top / (sum(a**k / factorial(k) for k in range(c)) + top))


@pytest.mark.parametrize(("most", "mean"), [(0, 0.5), (3, 2.0), (40, 30.0), (60, 59.0)])
def test_poisson_by_hand(most: int, mean: float) -> None:
    assert pools.poisson_at_most(most, mean) == pytest.approx(
        sum(exp(-mean) * mean**k / factorial(k) for k in range(most + 1))
    )


def test_a_large_poisson_is_near_the_exact_one() -> None:
    mean, most = 100.0, 110
    exact = sum(exp(-mean) * mean**k / factorial(k) for k in range(most + 1))
    assert pools.poisson_at_most(most, mean) == pytest.approx(exact, abs=0.01)


def test_a_single_server_waits_as_distserve_says() -> None:
    """M/D/1: mean wait = R·D²/(2(1−RD)); with an exponential tail P(wait > t) = RD·e^(−t/θ), whose mean is RD·θ."""
    load = Workload.of_means(4.0, 1000, 100, spread=0.0)
    seconds = MODEL.prefill_seconds([1000])
    use = 4.0 * seconds
    mean_wait = 4.0 * seconds**2 / (2 * (1 - use))
    span = mean_wait / use
    for ttft in (0.2, 0.3, 0.5):
        wanted = 1 - use * exp(-(ttft - seconds) / span)
        assert pools.prefill_attainment(ENGINE, 1, load, ttft, 0.0) == pytest.approx(wanted)


def test_a_prompt_that_is_too_long_is_late_by_itself() -> None:
    load = Workload.of_requests(0.001, [(1000, 10), (20_000, 10)])
    assert pools.prefill_attainment(ENGINE, 4, load, 0.5, 0.0) == pytest.approx(0.5, abs=0.01)


def test_slots_by_hand() -> None:
    step = 0.98 * 0.05
    found = pools.slots(ENGINE, 1000.0, 0.05)
    assert MODEL.decode_step_seconds(found, 1000) <= step < MODEL.decode_step_seconds(found + 1, 1000) or found == 256
    assert pools.slots(ENGINE, 1000.0, 0.001) == 0
    assert pools.slots(ENGINE, 100_000.0, None) == 3  # KV


@given(loads, st.integers(1, 40), st.floats(0.05, 5), st.floats(0.015, 0.2))
def test_more_replicas_never_hurt(load: Workload, replicas: int, ttft: float, tpot: float) -> None:
    targets = Targets(ttft, tpot)
    for attained in (
        lambda n: pools.prefill_attainment(ENGINE, n, load, ttft, 0.02),
        lambda n: pools.decode_attainment(ENGINE, n, load, tpot),
        lambda n: pools.aggregated_attainment(ENGINE, n, load, targets),
    ):
        fewer, more = attained(replicas), attained(replicas + 1)
        assert 0 <= fewer <= 1
        assert more >= fewer - 2e-3  # whole slots


@given(loads, st.integers(1, 40), st.floats(0.05, 5), st.floats(0.015, 0.2), st.floats(1.0, 3.0))
def test_more_load_never_helps(load: Workload, replicas: int, ttft: float, tpot: float, by: float) -> None:
    heavier = load.at(load.rate * by)
    assert pools.prefill_attainment(ENGINE, replicas, heavier, ttft, 0.02) <= (
        pools.prefill_attainment(ENGINE, replicas, load, ttft, 0.02) + 1e-9
    )
    assert (
        pools.decode_attainment(ENGINE, replicas, heavier, tpot)
        <= pools.decode_attainment(ENGINE, replicas, load, tpot) + 1e-2
    )


def test_the_highest_rate_is_where_the_promise_ends() -> None:
    load = Workload.of_means(1.0, 2000, 300)
    rate = pools.most_rate(lambda r: pools.prefill_attainment(ENGINE, 4, load.at(r), 1.0, 0.02), 0.95, 1.0)
    assert pools.prefill_attainment(ENGINE, 4, load.at(rate), 1.0, 0.02) >= 0.95
    assert pools.prefill_attainment(ENGINE, 4, load.at(rate * 1.02), 1.0, 0.02) < 0.95


def test_a_load_from_means_has_them() -> None:
    load = Workload.of_means(3.0, 1500, 250, spread=0.8)
    assert load.lengths.prompt == pytest.approx(1500)
    assert load.lengths.answer == pytest.approx(250)
    with pytest.raises(ValueError, match="no requests"):
        Workload.of_requests(1.0, [])

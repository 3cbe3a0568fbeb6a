"""The oracle's closed form against every schedule there is, and against known figures."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from steelyard.sim.oracle import cheapest, cheapest_share, needs, schedule


def brute(need, bin_seconds, start):
    """Try every number of replicas in every bin."""
    best = float("inf")
    for plan in product(*(range(n, max(need) + 1) for n in need)):
        before = (0, *plan[:-1])
        starts = sum(max(0, now - then) for then, now in zip(before, plan, strict=True))
        best = min(best, sum(plan) * bin_seconds + starts * start)
    return best


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.sampled_from([0.0, 1.0, 2.5, 7.0, 100.0]))
def test_the_closed_form_is_the_best_of_all_schedules(need, start):
    assert cheapest(need, 2.0, start) == pytest.approx(brute(need, 2.0, start))


@given(st.lists(st.integers(0, 6), min_size=1, max_size=60), st.sampled_from([0.0, 1.0, 2.5, 7.0, 100.0]))
def test_the_schedule_costs_what_the_closed_form_says(need, start):
    ready = schedule(need, 2.0, start)
    assert all(there >= wanted for there, wanted in zip(ready, need, strict=True))
    starts = sum(max(0, now - before) for before, now in zip([0, *ready[:-1]], ready, strict=True))
    assert sum(ready) * 2.0 + starts * start == pytest.approx(cheapest(need, 2.0, start))


@given(st.lists(st.floats(0, 5), min_size=1, max_size=40), st.floats(0, 300))
def test_bounds(work, start):
    need = needs(work)
    cost = cheapest(need, 10.0, start)
    assert sum(work) * 10 - 1e-6 <= cost <= max(need) * (10 * len(need) + start) + 1e-6
    assert cheapest(need, 10.0, start + 1) >= cost


def brute_share(work, bin_seconds, start, share, ready):
    """The cheapest plan that serves enough, by trying all."""
    best = float("inf")
    top = max(needs(work))
    for plan in product(range(top + 1), repeat=len(work)):
        served = sum(min(load, on) for load, on in zip(work, plan, strict=True))
        if served >= share * sum(work) - 1e-9:
            before = (ready, *plan[:-1])
            starts = sum(max(0, now - then) for then, now in zip(before, plan, strict=True))
            best = min(best, sum(plan) * bin_seconds + starts * start)
    return best


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(0.1, 2.5), min_size=1, max_size=5),
    st.sampled_from([0.0, 5.0, 20.0]),
    st.sampled_from([0.7, 0.9, 1.0]),
    st.integers(0, 2),
)
def test_serving_a_share_is_optimal_where_a_price_reaches_it(work, start, share, ready):
    cost, served = cheapest_share(work, 10.0, start, share, ready)
    assert served >= share - 1e-9
    exact = brute_share(work, 10.0, start, served, ready)
    assert cost == pytest.approx(exact, abs=1e-6), "no plan that serves as much is cheaper"
    assert cost >= brute_share(work, 10.0, start, share, ready) - 1e-6


def test_serving_nothing_costs_nothing():
    assert cheapest([0, 0], 1.0, 5.0) == 0
    assert cheapest_share([0.0, 0.0], 1.0, 5.0, 0.9) == (0.0, 1.0)

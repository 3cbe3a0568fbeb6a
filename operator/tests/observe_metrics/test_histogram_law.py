"""Percentiles, shares and sums of histograms: by table, and as properties against the values themselves."""

from __future__ import annotations

import math
from bisect import bisect_left
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from steelyard.observe.histograms import Histogram, collect, convolved, merged, percentile, share_within, total

GRID = (0.1, 0.2, 0.5, 1.0, 2.0, math.inf)


def of(values: list[float], grid: tuple[float, ...] = GRID) -> Histogram:
    counts = [0] * len(grid)
    for value in values:
        counts[bisect_left(grid, value)] += 1
    return tuple(zip(grid, map(float, accumulate(counts)), strict=True))


TEN = ((0.1, 0.0), (0.2, 4.0), (0.5, 8.0), (1.0, 10.0), (math.inf, 10.0))


@pytest.mark.parametrize(
    ("histogram", "share", "expected", "because"),
    [
        (TEN, 0.5, 0.275, "a quarter into the bucket from 0.2 to 0.5"),
        (TEN, 0.4, 0.2, "exactly at a bound"),
        (TEN, 1.0, 1.0, "the end of the last bucket that holds anything"),
        (TEN, 0.0, 0.1, "the least can be"),
        (((0.1, 1.0), (math.inf, 4.0)), 0.9, 0.1, "in the endless bucket: at least its lower bound"),
        (((0.1, 0.0), (math.inf, 0.0)), 0.5, None, "nothing was observed"),
        ((), 0.5, None, "no histogram"),
    ],
)
def test_percentiles(histogram: Histogram, share: float, expected: float | None, because: str) -> None:
    found = percentile(histogram, share)
    assert found == (None if expected is None else pytest.approx(expected)), because


@pytest.mark.parametrize(
    ("histogram", "limit", "expected", "because"),
    [
        (TEN, 0.5, 0.8, "at a bound"),
        (TEN, 0.35, 0.6, "half into a bucket"),
        (TEN, 0.05, 0.0, "below all"),
        (TEN, 5.0, 1.0, "all of them ended within the last finite bucket"),
        (((0.1, 1.0), (math.inf, 4.0)), 3.0, 0.25, "nobody knows the end of the endless bucket: late"),
        (((math.inf, 0.0),), 3.0, None, "nothing was observed"),
    ],
)
def test_shares_within_an_objective(histogram: Histogram, limit: float, expected: float | None, because: str) -> None:
    assert share_within(histogram, limit) == (None if expected is None else pytest.approx(expected)), because


values = st.lists(st.floats(0.001, 3.0), min_size=1, max_size=60)


@given(values, st.floats(0.01, 1.0))
def test_a_percentile_lies_in_the_bucket_of_the_true_one(given_values: list[float], share: float) -> None:
    true = sorted(given_values)[max(0, math.ceil(share * len(given_values) - 1e-9) - 1)]
    place = bisect_left(GRID, true)
    found = percentile(of(given_values), share)
    assert found is not None
    lower = GRID[place - 1] if place else 0.0
    upper = lower if math.isinf(GRID[place]) else GRID[place]
    assert lower - 1e-9 <= found <= upper + 1e-9


@given(values, st.floats(0.0, 4.0), st.floats(0.0, 4.0))
def test_a_longer_limit_is_met_by_no_fewer(given_values: list[float], one: float, other: float) -> None:
    shares = [share_within(of(given_values), limit) for limit in sorted((one, other))]
    assert shares[0] is not None
    assert shares[1] is not None
    assert 0.0 <= shares[0] <= shares[1] <= 1.0


@given(values, values)
def test_a_sum_takes_longer_than_either_part(first: list[float], second: list[float]) -> None:
    both = convolved(of(first), of(second))
    assert total(both) == 1.0
    assert [amount for _, amount in both] == sorted(amount for _, amount in both)
    for limit in (0.1, 0.5, 1.0, 2.0):
        within, alone = share_within(both, limit), share_within(of(second), limit)
        assert within is not None
        assert alone is not None
        assert within <= alone + 1e-9


def test_a_sum_of_two_times_is_read_to_half_a_bucket() -> None:
    """Prefill in 0.45 to 0.55 s and a first step in 0.1 to 0.2 s: all within 0.75 s, none within 0.5 s."""
    fine = (*(n / 20 for n in range(1, 41)), math.inf)
    first, second = of([0.46, 0.5, 0.54], fine), of([0.12, 0.15, 0.18], fine)
    both = convolved(first, second)
    assert share_within(both, 0.5) == pytest.approx(0.0)
    assert share_within(both, 0.8) == pytest.approx(1.0)
    assert percentile(both, 0.5) == pytest.approx(0.65, abs=0.05)


def test_nothing_observed_in_one_part_is_no_sum() -> None:
    assert convolved(of([0.3]), ((math.inf, 0.0),)) == ()


def test_rows_become_histograms_and_a_fall_is_mended() -> None:
    """A restart between two scrapes can make a larger bucket smaller; the amounts are then made to rise."""
    rows = {
        ("a", "chat", "0.5"): 5.0,
        ("a", "chat", "0.1"): 2.0,
        ("a", "chat", "1"): 4.0,
        ("a", "chat", "+Inf"): 9.0,
        ("a", "mail", "0.1"): 1.0,
    }
    found = collect(rows)
    assert found["a", "chat"] == ((0.1, 2.0), (0.5, 5.0), (1.0, 5.0), (math.inf, 9.0))
    assert found["a", "mail"] == (), "without its last bucket nobody knows how many there were"


def test_histograms_of_one_grid_add_up_and_others_on_the_bounds_they_share() -> None:
    assert merged([of([0.05, 0.3]), of([0.3])]) == of([0.05, 0.3, 0.3])
    assert merged([((0.1, 1.0), (math.inf, 2.0)), ((0.2, 1.0), (math.inf, 1.0))]) == ((math.inf, 3.0),)
    assert merged([]) == ()

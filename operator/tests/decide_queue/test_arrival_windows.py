"""The quarter-second windows: exact, aligned, and additive over gateways."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from steelyard.decide.queue.windows import WINDOW_SECONDS, WINDOWS, ArrivalWindows

START = 1_800_000_000.0
ARRIVALS = st.lists(st.tuples(st.floats(0, 300), st.floats(0, 5000)), max_size=60)


def naive(arrivals: list[tuple[float, float]], end: float) -> list[float]:
    first = end - WINDOWS * WINDOW_SECONDS
    windows = [0.0] * WINDOWS
    for at, tokens in arrivals:
        if first <= at < end:
            windows[int((at - first) // WINDOW_SECONDS)] += tokens
    return windows


@given(ARRIVALS, st.floats(0, 600))
def test_they_equal_a_plain_count(arrivals: list[tuple[float, float]], later: float) -> None:
    windows = ArrivalWindows()
    timed = sorted((START + at, tokens) for at, tokens in arrivals)
    for at, tokens in timed:
        windows.add(at, tokens)
    end, complete = windows.complete(START + 300 + later)
    assert end % WINDOW_SECONDS == 0
    assert end <= START + 300 + later < end + WINDOW_SECONDS
    assert complete == pytest.approx(naive(timed, end))


@given(ARRIVALS, ARRIVALS)
def test_two_gateways_add_up_to_one(one: list[tuple[float, float]], other: list[tuple[float, float]]) -> None:
    def of(arrivals: list[tuple[float, float]]) -> tuple[float, list[float]]:
        windows = ArrivalWindows()
        for at, tokens in sorted(arrivals):
            windows.add(START + at, tokens)
        return windows.complete(START + 301)

    (end_one, first), (end_other, second), (end, both) = of(one), of(other), of(one + other)
    assert end_one == end_other == end
    assert [a + b for a, b in zip(first, second, strict=True)] == pytest.approx(both)


def test_the_window_under_way_is_not_shown_yet() -> None:
    windows = ArrivalWindows()
    windows.add(START, 10)
    assert sum(windows.complete(START + 0.2)[1]) == 0
    assert windows.complete(START + 0.25)[1][-1] == 10


def test_a_correction_finds_its_old_window_and_never_goes_below_zero() -> None:
    windows = ArrivalWindows()
    windows.add(START, 10)
    windows.add(START + 5, 3)
    windows.add(START, -4)
    windows.add(START + 5, -9)
    complete = windows.complete(START + 6)[1]
    assert (complete[-24], complete[-4]) == (6, 0)


def test_a_clock_set_back_loses_nothing() -> None:
    windows = ArrivalWindows()
    windows.add(START + 100, 7)
    windows.add(START + 90, 5)
    end, complete = windows.complete(START + 50)
    assert end == START + 100
    assert sum(complete) == 5
    assert sum(windows.complete(START + 101)[1]) == 12


def test_hours_of_silence_leave_zeros() -> None:
    windows = ArrivalWindows()
    windows.add(START, 10)
    assert sum(windows.complete(START + 86_400)[1]) == 0

"""The engine-side order: shortest first, the late ones last, and yet nobody starves."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard_kernels.vllm_plugin.order import LATE_CREDIT, Entry, Line, Objective

AIM = Objective(ttft=2.0, per_token=0.001)  # a prefill of 1,000 tokens takes a second


def served(line: Line, now: float = 0.0, ahead: float = 0.0) -> str:
    """Keys in the order in which they are taken when no time passes."""
    return "".join(line.take(now, ahead).key for _ in range(len(line)))


@pytest.mark.parametrize(
    ("waiting", "now", "ahead", "order", "because"),
    [
        ([("a", 300, 0), ("b", 100, 0), ("c", 200, 0)], 0.0, 0.0, "bca", "shortest first"),
        ([("a", 100, 0), ("b", 100, 0)], 0.0, 0.0, "ab", "equals keep their order"),
        ([("a", 100, -3), ("b", 900, 0)], 0.0, 0.0, "ba", "a has waited 3 s: late, so last"),
        ([("a", 2500, 0), ("b", 100, 0)], 0.0, 0.0, "ba", "a can never be in time"),
        ([("a", 900, 0), ("b", 100, 0)], 0.0, 1.5, "ba", "1.5 s of work under way makes a late"),
        ([("a", 100, -9), ("b", 50, -5)], 0.0, 0.0, "ba", "both late: as they were found to be"),
    ],
)
def test_who_is_served_when(waiting: list, now: float, ahead: float, order: str, because: str) -> None:
    line = Line(AIM)
    for key, tokens, arrived in waiting:
        line.add(Entry(key, tokens, arrived))
    assert served(line, now, ahead) == order, because


def test_without_an_objective_nobody_is_late() -> None:
    line = Line(Objective(None, 0.001))
    for key, tokens, arrived in (("a", 5000, -100), ("b", 6000, 0), ("c", 10, 0)):
        line.add(Entry(key, tokens, arrived))
    assert served(line) == "cab"


def test_a_late_one_is_served_once_a_tenth_of_the_others_work_pays_for_it() -> None:
    line = Line(AIM)
    line.add(Entry("late", 390, -10.0))
    taken = []
    for number in range(20):
        line.add(Entry(f"on time {number}", 500, 0.0))
        taken.append(line.take(0.0).key)
        if taken[-1] == "late":
            break
    # Each on-time one earns 0.05 s, and the late one costs 0.39 s.
    assert taken.index("late") == math.ceil(0.39 / (LATE_CREDIT * 0.5))


@given(
    tokens=st.lists(st.integers(1, 4000), min_size=1, max_size=12),
    arrived=st.lists(st.floats(-5, 0), min_size=12, max_size=12),
    gone=st.sets(st.integers(0, 11)),
)
def test_everybody_is_served_once_but_those_who_left(tokens: list[int], arrived: list[float], gone: set[int]) -> None:
    line = Line(AIM)
    for number, count in enumerate(tokens):
        line.add(Entry(str(number), count, arrived[number]))
    line.peek(0.0)
    left = {str(number) for number in gone if line.remove(str(number))}
    taken = [line.take(0.0).key for _ in range(len(line))]
    assert sorted(taken) == sorted({str(number) for number in range(len(tokens))} - left)
    assert line.peek(0.0) is None


@given(tokens=st.lists(st.integers(1, 1000), min_size=2, max_size=12), credit=st.floats(0, 1))
def test_peek_says_whom_take_takes(tokens: list[int], credit: float) -> None:
    line = Line(AIM)
    line.credit = credit
    for number, count in enumerate(tokens):
        line.add(Entry(str(number), count, -2.0 if number % 3 == 0 else 0.0))
    while len(line):
        assert line.peek(0.0) == line.take(0.0)


def test_a_key_that_waits_is_refused() -> None:
    line = Line(AIM)
    line.add(Entry("a", 1, 0.0))
    with pytest.raises(ValueError, match="request a waits already"):
        line.add(Entry("a", 1, 0.0))
    with pytest.raises(ValueError, match="nobody waits"):
        Line(AIM).take(0.0)

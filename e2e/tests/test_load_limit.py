"""The client's own limit: the search for it, and a short real measurement."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from e2e.load.cli import app
from e2e.load.selftest import Course, Trial, limit, run, search


def at(rate: float, held: bool) -> Trial:
    return Trial(rate, 0.001, 0.001, 0.1, 0, held)


@given(truth=st.floats(1, 40_000))
def test_the_highest_rate_is_found_within_the_last_halving(truth: float) -> None:
    found = limit(search(lambda rate: at(rate, rate <= truth), first=50, most=20_000, halvings=3))
    if truth < 50:
        assert found is None, "not even the first rate was held"
    else:
        assert found is not None
        assert found.rate <= truth
        reachable = min(truth, 12_800)  # the last doubling of 50 that is no more than 20,000
        assert found.rate * 2 ** (1 / 8) > reachable * (1 - 1e-9)


def test_one_busy_moment_is_no_limit() -> None:
    answers = iter([False, True, True, False, False])
    trials = search(lambda rate: at(rate, next(answers)), first=10, most=1000, halvings=0)
    assert [one.rate for one in trials] == [10, 10, 20, 40, 40]
    found = limit(trials)
    assert found is not None
    assert found.rate == 20


def test_a_real_measurement_against_the_stub() -> None:
    """With a bound that any machine keeps and few requests: how far it comes is not asserted, what it says of it is."""
    told: list[Trial] = []
    trials = run(Course(seconds=1, tokens=4, processes=2, bound=600, most=60), told.append)
    assert trials == told
    assert {one.rate for one in trials} == {50.0}
    assert [one.broken for one in trials] == [0] * len(trials)
    assert all(math.isfinite(one.send_lag_p99) and one.cpu > 0 for one in trials)


@pytest.mark.parametrize(("bound", "status", "says"), [("600", 0, r"holds 20 requests/s \(40 tokens/s\).*measured on"),
                                                       ("0.001", (0, 1), r"measured on|no rate was held within 1 ms")])  # fmt: skip
def test_the_command(bound: str, status: int | tuple[int, ...], says: str) -> None:
    flags = ["--seconds", "1", "--output-tokens", "2", "--bound", bound, "--most", "20"]
    done = CliRunner().invoke(app, ["selftest", *flags])
    assert done.exit_code in (status if isinstance(status, tuple) else (status,)), done.output
    assert re.search(says, done.output), done.output

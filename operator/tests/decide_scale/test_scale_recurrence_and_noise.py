"""What is learnt of needs that come back, how a short rate is doubted, and when a burst may ask for more."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scale_worlds import World, service
from steelyard.decide.scale import loss
from steelyard.decide.scale.decision import Tick
from steelyard.decide.scale.prefill import Prefill, _rate
from steelyard.decide.scale.windows import Kept, Spans, further, most

SPANS = Spans(brief=60.0, long=120.0, start=60.0)


def after(needs: dict[float, int], until: float) -> Kept:
    """The need of every five seconds until a time; those not named are that of the name before."""
    kept, need = Kept(), 0
    for tick in range(int(until // 5) + 1):
        need = needs.get(tick * 5.0, need)
        kept = further(kept, tick * 5.0, need, SPANS)
    return kept


@pytest.mark.parametrize(
    ("needs", "until", "sign", "because"),
    [
        ({0.0: 4}, 600.0, 0, "what never goes teaches nothing"),
        ({0.0: 4, 10.0: 2, 40.0: 4}, 300.0, 0, "a gap that both spans bridge teaches nothing"),
        ({0.0: 4, 10.0: 2, 90.0: 4}, 120.0, 1, "the brief span would have paid another start"),
        ({0.0: 4, 10.0: 2}, 120.0, 0, "whether it comes back is not known yet"),
        ({0.0: 4, 10.0: 2}, 200.0, -1, "it stayed away for longer than the long span"),
        ({0.0: 4, 10.0: 3, 100.0: 4, 110.0: 2}, 300.0, -1, "two stayed away, one had come back in time"),
        ({0.0: 4, 10.0: 2, 90.0: 4, 100.0: 2, 180.0: 4}, 200.0, 1, "every time it comes back counts"),
    ],
)  # fmt: skip
def test_what_came_back_decides_how_long_a_surplus_is_kept(needs, until, sign, because):
    kept = after(needs, until)
    assert (kept.gain > 0) - (kept.gain < 0) == sign, because
    assert SPANS.of(kept) == (SPANS.brief if sign < 0 else SPANS.long)


def test_a_surplus_that_did_not_come_back_is_given_up_earlier_the_next_time() -> None:
    needs = {0.0: 4, 10.0: 2, 400.0: 4, 410.0: 2}
    first, second = ([t for t in range(int(begin), int(begin) + 200, 5) if most(after(needs, t), t, SPANS) == 4]
                     for begin in (5.0, 405.0))  # fmt: skip
    assert max(first) - 5 == SPANS.long
    assert max(second) - 405 == SPANS.brief


def test_what_was_learnt_fades() -> None:
    short, later = after({0.0: 4, 10.0: 2}, 200.0), after({0.0: 4, 10.0: 2}, 2000.0)
    assert short.gain < later.gain < 0


@pytest.mark.parametrize(
    ("windows", "expected", "because"),
    [
        ([100.0] * 240, 400.0, "an even rate is not doubted"),
        ([0.0] * 160 + [100.0] * 80, pytest.approx(400.0 - 4 * 0.8 * 100 * (2 / 9) ** 0.5 / 80**0.5), "a step is, a little"),
        ([0.0, 200.0] * 120, 400.0, "nor is the mean of the minute, however uneven its windows"),
        ([0.0] * 200 + [2000.0] + [0.0] * 39, pytest.approx(53.9, abs=0.1), "one clump, 100 by the short rate, counts for half"),
        ([100.0] * 160 + [50.0] * 80, 200.0, "a rate that falls is believed"),
    ],
)  # fmt: skip
def test_a_short_rate_counts_as_far_as_it_stands_out_from_its_noise(windows, expected, because):
    assert _rate(windows) == expected, because


def test_a_burst_asks_for_more_than_is_kept_only_while_it_loses_work() -> None:
    """Half out of sight it is a larger share of what is left; that alone asks for nothing."""
    burst, quiet = (30_000.0,) * 40, (1_000.0,) * 200
    for tokens, freely in (((*quiet, *burst), True), ((*burst, *quiet), False)):
        arrived = loss.load(tokens, (Tick(0.0, None, 0.0), Tick(60.0, None, 0.0)), 120.0)
        prefill = Prefill(arrived, 4_000.0, 10_000.0, 1.0, 0.05)
        unbound = prefill.burst((1, 40), 5, kept=40)
        assert unbound > 4
        assert prefill.burst((1, 40), 5, kept=4) == (unbound if freely else 4)


@settings(max_examples=6, deadline=None)  # each is an hour of a service's life
@given(
    length=st.floats(5, 400),
    height=st.floats(0.1, 1.0),
    before=st.floats(20, 200),
    start=st.sampled_from([10.0, 60.0, 180.0]),
    change=st.booleans(),
)
def test_a_burst_gives_one_rise_and_one_fall_whatever_was_learnt_before(length, height, before, start, change):
    def load(t: float) -> tuple[float, float]:
        bursts = ((300.0, 300.0 + before, 0.8), (1100.0, 1100.0 + before, 0.8), (2000.0, 2000.0 + length, height))
        high = next((share for begin, end, share in bursts if begin <= t < end), 0.0)
        return 8_000.0 + high * 72_000.0, 8.0 + high * 72.0

    world = World(service(role_change=change), load, 2, 1, start_seconds=start).run(2000)
    world.sizes.clear()
    world.run(length + 900)
    moves = [b - a for a, b in pairwise(p + d for _, p, d in world.sizes) if b != a]
    assert sum((a > 0) != (b > 0) for a, b in pairwise(moves)) <= 1

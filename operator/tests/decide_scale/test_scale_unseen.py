"""Requests that no gateway of ours sees: rates from engines' figures, room for bursts, and speed where a replica is full."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scale_worlds import ENGINE, NOW, fleet, replica, service, signals
from steelyard.decide.scale import unseen
from steelyard.decide.scale.capacity import capacity
from steelyard.decide.scale.decision import Learnt, Memory, Sums, Tick
from steelyard.decide.scale.fits import FORGET_SECONDS
from steelyard.decide.scale.law import decide
from steelyard.decide.scale.signals import Objectives

PROMISED = Objectives(2.0, 0.05, 0.95)


@pytest.mark.parametrize(
    ("before", "after", "rate", "because"),
    [
        (0.0, 0.0, 1000.0, "nobody waits: what is finished is what arrives"),
        (0.0, 20_000.0, 2000.0, "a queue that grows by a thousand tokens a second"),
        (20_000.0, 0.0, 0.0, "a queue that is worked off: nothing new arrives"),
        (90_000.0, 0.0, 0.0, "never below nothing"),
        (20_000.0, None, 1000.0, "one replica does not tell: no correction"),
    ],
)
def test_queues_that_grow_are_arrivals(before: float, after: float | None, rate: float, because: str) -> None:
    seen = signals(fleet(2, 1), uncached_rate=1000.0, arrivals=None)
    ticks = (Tick(NOW - 25, 0.0, 1.0, 50_000.0), Tick(NOW - 20, 0.0, 1.0, before), Tick(NOW - 5, 0.0, 1.0, 0.0))
    assert unseen.with_queues(seen, ticks, after).uncached_rate == pytest.approx(rate), because


def test_a_young_history_is_corrected_by_what_there_is_of_it() -> None:
    seen = signals(fleet(2, 1), uncached_rate=1000.0, arrivals=None)
    assert unseen.with_queues(seen, (), 500.0) == seen
    assert unseen.with_queues(seen, (Tick(NOW - 60, 0.0, 1.0, 0.0),), 500.0) == seen, "too old to say how fast"
    assert unseen.with_queues(seen, (Tick(NOW - 5, 0.0, 1.0, 0.0),), 500.0).uncached_rate == pytest.approx(1100.0)


@given(st.floats(0.1, 100), st.floats(10, 8000), st.floats(500, 50_000), st.floats(0.05, 10), st.floats(0.001, 0.5))
def test_room_for_bursts(rate: float, tokens: float, velocity: float, patience: float, allowed: float) -> None:
    """More is kept for more requests and longer ones, less for faster replicas, patient clients and generous objectives."""

    def room(**other: float) -> float:
        of = {"rate": rate, "tokens": tokens, "velocity": velocity, "patience": patience, "allowed": allowed, **other}
        seen = signals(fleet(1, 1), request_rate=of["rate"], mean_uncached=of["tokens"])
        return unseen.burst_rate(seen, of["velocity"], of["patience"], of["allowed"])

    here = room()
    assert here > 0
    for more in ({"rate": 2 * rate}, {"tokens": 2 * tokens}):
        assert room(**more) > here
    for less in ({"velocity": 2 * velocity}, {"patience": 2 * patience}, {"allowed": 1.9 * allowed}):
        assert room(**less) < here


def test_what_is_not_known_asks_for_no_room() -> None:
    assert unseen.burst_rate(signals(fleet(1, 1), request_rate=None), 8000.0, 1.0, 0.1) == 0.0
    assert unseen.burst_rate(signals(fleet(1, 1), request_rate=5.0), 8000.0, 1.0, 0.0) == 0.0


@pytest.mark.parametrize(
    ("waits", "share", "because"),
    [
        ((0.0, 0.0), 0.0, "nobody waits"),
        ((9.0, 0.0), 0.5, "nine prompts of a thousand tokens are more than a second of eight thousand"),
        ((8.0, 8.0), 0.0, "just in time"),
        ((9.0, None), None, "one does not tell"),
        ((), None, "nobody prefills"),
    ],
)
def test_who_comes_now_is_late(waits: tuple[float | None, ...], share: float | None, because: str) -> None:
    reading = [replica(f"p{n}", "prefill", waiting=w) for n, w in enumerate(waits)]
    seen = signals(tuple(reading), mean_uncached=1000.0)
    assert unseen.late(seen, reading, 8000.0, 1.0) == share, because


@pytest.mark.parametrize(
    ("beta", "share", "starting", "after", "because"),
    [
        (1.0, 0.5, False, 1.2, "too many are late"),
        (1.0, 0.5, True, 1.0, "those that were asked for still start"),
        (2.4, 0.5, False, 2.5, "up to a bound"),
        (1.0, 0.1, False, 0.98, "as many as may be"),
        (0.8, 0.0, False, 0.8, "down to the bound that beta has anywhere"),
        (1.3, None, False, 1.3, "unknown teaches nothing"),
    ],
)
def test_feedback_without_judges(beta: float, share: float | None, starting: bool, after: float, because: str) -> None:
    assert unseen.feedback(beta, share, 0.1, 5.0, starting=starting) == pytest.approx(after), because


def test_a_replica_is_as_fast_as_it_is_while_full() -> None:
    """Half a minute of waiting makes its rate a speed; a moment of it does not, nor does another role's."""
    seen = signals((replica("p0", "prefill", waiting=40.0, prefill_rate=5000.0), replica("d0", "decode", waiting=9.0)))
    full = unseen.full_since({"p0": NOW - 30, "gone": NOW - 90}, seen)
    assert full == {"p0": NOW - 30, "d0": NOW}
    assert unseen.learn(Learnt(), full, seen, "prefill", 5.0).full_velocity == 5000.0
    assert unseen.learn(Learnt(), {"p0": NOW - 10}, seen, "prefill", 5.0).full_velocity is None
    assert unseen.learn(Learnt(), full, seen, "decode", 5.0).full_velocity is None
    again = unseen.learn(Learnt(full_velocity=4000.0), full, seen, "prefill", 5.0).full_velocity
    assert again == pytest.approx(4300.0)


def test_that_bound_fades() -> None:
    idle = signals(fleet(1, 1))
    later = unseen.learn(Learnt(full_velocity=4000.0), {}, idle, "prefill", FORGET_SECONDS)
    assert later.full_velocity == pytest.approx(4000.0 * 2.71828, rel=1e-4)


def test_a_fit_that_went_astray_is_held() -> None:
    """Case: prompts of one length shared passes, the fit was c·n² alone, and a pass of one token the fastest: 13 million
    tokens per second, so that one replica was asked for while seven thousand prompts waited in it."""
    astray = Sums(
        moments=(51807.9, 100387.2, 197833.3, 197833.3, 396271.65, 806466.76),
        products=(15211.446, 30592.361, 62472.546),
        samples=20646.9,
    )
    known = capacity(ENGINE, Learnt(prefill=astray), PROMISED)
    assert known.velocity <= 10 * capacity(ENGINE, Learnt(), PROMISED).velocity
    assert capacity(ENGINE, Learnt(prefill=astray, full_velocity=9000.0), PROMISED).velocity == 9000.0


def test_what_waits_in_full_engines_is_made_up_for() -> None:
    """Two replicas that are full finish what they can, and their queues grow by as much again each second: from their
    figures alone more are asked for."""
    asked = service(prefill=(1, 32), decode=(1, 32), role_change=False)
    memory, sizes = Memory(), []
    for tick in range(8):
        pods = tuple(
            replica(f"p{n}", "prefill", waiting=80.0 * tick, prefill_rate=8000.0, running=8.0) for n in range(2)
        )
        decoding = replica("d0", "decode", running=4.0)
        rates = {"arrivals": None, "by_engines": True, "uncached_rate": 16_000.0, "request_rate": 16.0}
        decision = decide(asked, signals((*pods, decoding), at=NOW + 5 * tick, **rates), memory)
        memory = decision.memory
        sizes.append(decision.desired["prefill"])
    assert sizes[-1] >= 4, "thirty-two thousand tokens a second arrive, of which sixteen are finished"

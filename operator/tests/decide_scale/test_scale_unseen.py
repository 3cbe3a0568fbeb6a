"""Requests that no gateway of ours sees: rates from engines' figures, room for bursts, and speed where a replica is full."""

from math import e, inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scale_worlds import ENGINE, NOW, fleet, replica, service, signals
from steelyard.decide.scale import learning, unseen
from steelyard.decide.scale.capacity import capacity
from steelyard.decide.scale.decision import Decision, Full, Learnt, Memory, Queues, Sums
from steelyard.decide.scale.law import decide
from steelyard.decide.scale.signals import Objectives, Replica

PROMISED = Objectives(2.0, 0.05, 0.95)


@pytest.mark.parametrize(
    ("then", "now", "rate", "because"),
    [
        ({"p0": 0.0, "p1": 0.0}, {"p0": 0.0, "p1": 0.0}, 1000.0, "nobody waits: what is finished is what arrives"),
        (
            {"p0": 0.0, "p1": 0.0},
            {"p0": 12.0, "p1": 8.0},
            2000.0,
            "queues that grow by a prompt of 1,000 tokens a second",
        ),
        ({"p0": 12.0, "p1": 8.0}, {"p0": 0.0, "p1": 0.0}, 0.0, "queues that are worked off: nothing new arrives"),
        ({"p0": 90.0, "p1": 0.0}, {"p0": 0.0, "p1": 0.0}, 0.0, "never below nothing"),
        ({"p0": 90.0, "p1": 0.0}, {"p1": 0.0}, 1000.0, "who leaves takes its queue along: that was not worked off"),
        ({"p0": 0.0}, {"p0": 0.0, "p1": 20.0}, 2000.0, "who is new began with none"),
    ],
)
def test_queues_that_grow_are_arrivals(
    then: dict[str, float], now: dict[str, float], rate: float, because: str
) -> None:
    seen = signals(fleet(2, 1), uncached_rate=1000.0)
    history = (Queues(NOW - 25, {"p0": 700.0}), Queues(NOW - 20, then), Queues(NOW - 5, {}), Queues(NOW, now))
    assert unseen.with_queues(seen, history).uncached_rate == pytest.approx(rate), because


def test_prompts_that_become_longer_are_no_arrivals() -> None:
    """A hundred wait throughout: whether their mean was a thousand tokens or more, nobody came."""
    seen = signals(fleet(1, 1), uncached_rate=1000.0, mean_uncached=1100.0)
    still = (Queues(NOW - 20, {"p0": 100.0}), Queues(NOW, {"p0": 100.0}))
    assert unseen.with_queues(seen, still).uncached_rate == 1000.0


def test_a_young_history_is_corrected_by_what_there_is_of_it() -> None:
    seen = signals(fleet(1, 1), uncached_rate=1000.0)
    reading = [replica("p0", "prefill", waiting=1.0)]
    assert unseen.with_queues(seen, ()) == seen
    first = unseen.queues((Queues(NOW - 60, {"p0": 0.0}),), seen, reading)
    assert first == (Queues(NOW, {"p0": 1.0}),), "what is too old says nothing of how fast"
    assert unseen.with_queues(seen, first) == seen
    second = unseen.queues((Queues(NOW - 5, {"p0": 0.0}),), seen, reading)
    assert unseen.with_queues(seen, second).uncached_rate == pytest.approx(1200.0)


def test_a_replica_that_does_not_tell_ends_no_history() -> None:
    seen = signals(fleet(1, 1), uncached_rate=1000.0)
    before = (Queues(NOW - 5, {"p0": 3.0}),)
    found = unseen.queues(before, seen, [replica("p0", "prefill", waiting=None)])
    assert found == before
    assert unseen.with_queues(seen, found) == seen, "no count of this moment: no correction"


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
    ("beta", "share", "elsewhere", "after", "because"),
    [
        (1.0, 0.5, False, 1.2, "too many are late"),
        (1.0, 0.5, True, 1.0, "those that were asked for still start, or decode makes requests wait"),
        (2.4, 0.5, False, 2.5, "up to a bound"),
        (1.0, 0.1, False, 0.98, "as many as may be"),
        (0.8, 0.0, False, 0.8, "down to the bound that beta has anywhere"),
        (1.3, None, False, 1.3, "unknown teaches nothing"),
    ],
)
def test_feedback_without_judges(beta: float, share: float | None, elsewhere: bool, after: float, because: str) -> None:
    assert unseen.feedback(beta, share, 0.1, 5.0, elsewhere=elsewhere) == pytest.approx(after), because


def pool(*rates: float, waiting: float = 40.0) -> tuple[Replica, ...]:
    return tuple(replica(f"p{n}", "prefill", waiting=waiting, prefill_rate=rate) for n, rate in enumerate(rates))


def test_a_replica_is_as_fast_as_it_is_while_full() -> None:
    """Half a minute of waiting makes its rate a speed; a moment of it does not, nor does another role's."""
    seen = signals((*pool(5000.0), replica("d0", "decode", waiting=9.0)))
    since = unseen.full_since({"p0": NOW - 30, "gone": NOW - 90}, seen, "prefill")
    assert since == {"p0": NOW - 30}
    assert unseen.full(None, since, seen, "prefill") == Full(5000.0, NOW)
    assert unseen.full(None, {"p0": NOW - 10}, seen, "prefill") is None
    assert unseen.full(None, since, seen, "decode") is None
    again = unseen.full(Full(4000.0, NOW), since, seen, "prefill")
    assert again is not None
    assert again.velocity == pytest.approx(4300.0)


def test_one_that_is_ill_says_nothing_of_the_others() -> None:
    ill = replica("p9", "prefill", waiting=3.0, prefill_rate=50.0)
    seen = signals((*pool(*[8000.0] * 7, waiting=0.0), ill))
    assert unseen.full(None, {"p9": NOW - 60}, seen, "prefill") is None


def test_that_bound_fades_and_ends() -> None:
    assert unseen.most(None, NOW) == inf
    known = Full(4000.0, NOW)
    assert unseen.most(known, NOW) == 4000.0
    assert unseen.most(known, NOW + unseen.FADE_SECONDS) == pytest.approx(4000.0 * e)
    assert unseen.most(known, NOW + 3 * unseen.FADE_SECONDS) == inf
    assert unseen.most(known, NOW + 1e9) == inf


def test_a_fit_that_went_astray_is_held() -> None:
    """Case: prompts of one length shared passes, the fit was c·n² alone, and a pass of one token the fastest: 13 million
    tokens per second, so that one replica was asked for while seven thousand prompts waited in it."""
    astray = Sums(
        moments=(51807.9, 100387.2, 197833.3, 197833.3, 396271.65, 806466.76),
        products=(15211.446, 30592.361, 62472.546),
        samples=20646.9,
    )
    prior = capacity(ENGINE, Learnt(), PROMISED).velocity
    assert capacity(ENGINE, Learnt(prefill=astray), PROMISED).velocity == pytest.approx(10 * prior)
    assert capacity(ENGINE, Learnt(prefill=astray), PROMISED, 9000.0).velocity == 9000.0
    assert capacity(ENGINE, Learnt(), PROMISED, 1.0).velocity == pytest.approx(prior / 9), "a bound is held as well"


def ticks(number: int, decoding: float = 0.0, **rates: Any) -> tuple[Decision, Memory]:
    """Behind another router: two replicas that finish sixteen thousand tokens a second and queue as much again each second."""
    asked = service(prefill=(1, 64), decode=(1, 4), role_change=False)
    memory = Memory()
    for tick in range(number):
        pods = (*pool(8000.0, 8000.0, waiting=40.0 * tick), replica("d0", "decode", running=4.0, waiting=decoding))
        told = {"arrivals": None, "by_engines": True, "uncached_rate": 16_000.0, "request_rate": 16.0, **rates}
        decision = decide(asked, signals(pods, at=NOW + 5 * tick, decode_queue=decoding, **told), memory)
        memory = decision.memory
    return decision, memory


def test_what_waits_in_full_engines_counts_as_arrived() -> None:
    """40 more prompts in each of two each tick are 16,000 tokens a second beside the 16,000 that are finished."""
    decision, memory = ticks(8)
    [rate] = [term for term in decision.terms if term.name == "rate"]
    assert rate.words.startswith("32000 uncached tokens/s")
    assert memory.learnt.beta == unseen.BETA_MOST, "every replica is late at every tick"
    assert memory.full is not None
    assert memory.full.velocity == pytest.approx(8000.0, rel=0.01)
    assert decision.desired["prefill"] >= 8


def test_decode_that_makes_prompts_wait_is_not_prefills_fault() -> None:
    decision, memory = ticks(8, decoding=60.0)
    assert memory.learnt.beta <= 1.0
    assert memory.full is None
    assert decision.desired["prefill"] < ticks(8)[0].desired["prefill"]


def test_behind_our_gateway_nothing_of_it_is_left() -> None:
    """The router goes: beta comes back within its bound, and queues and speeds of engines say nothing any more."""
    _, memory = ticks(8)
    seen = signals(fleet(2, 1), at=NOW + 45, rate=1000.0)
    after = decide(service(role_change=False), seen, memory).memory
    assert (after.queues, after.full_since, after.full) == ((), {}, None)
    assert after.learnt.beta <= learning.BETA_MOST

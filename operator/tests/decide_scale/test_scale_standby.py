"""Replicas that stand by: beyond the need and within every limit, in each of the law's situations."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from scale_worlds import NOW, World, aggregated, fleet, replica, service, signals, total
from steelyard.decide.scale.decision import Decision, LimitedBy, Memory
from steelyard.decide.scale.law import decide
from steelyard.decide.scale.signals import Service


def settled(spec: Service, rate: float, sequences: float = 0.0) -> World:
    """A world that has had ten minutes of a steady load."""
    return World(spec, lambda t: (rate, sequences), 1, 1).run(600)


def words(decision: Decision) -> dict[str, str]:
    return {term.name: term.words for term in decision.terms}


def test_each_role_has_its_own_beyond_what_the_load_needs() -> None:
    bare, more = (
        settled(service(role_change=False), 40_000, 5),
        settled(service(role_change=False, standby=2), 40_000, 5),
    )
    for role in ("prefill", "decode"):
        assert more.count(role) == bare.count(role) + 2
    assert words(more.decisions[-1])["standby"] == "4 are to stand by beyond the need (spec.autoscaling.standby)"
    assert more.decisions[-1].ruled != "standby", "the load's own terms rule"


def test_interchangeable_roles_share_them() -> None:
    bare, more = settled(service(), 40_000, 5), settled(service(standby=1), 40_000, 5)
    assert more.count("prefill") + more.count("decode") == bare.count("prefill") + bare.count("decode") + 2


def test_one_pool_has_them_once() -> None:
    spec = aggregated(standby=2)
    pods = (replica("a0", "aggregated"),)
    assert total(decide(spec, signals(pods), Memory())) == 3


def test_an_idle_service_keeps_them_and_does_not_grow_further() -> None:
    world = settled(service(role_change=False, standby=1), 0.0)
    assert (world.count("prefill"), world.count("decode")) == (2, 2)
    world.run(600)
    assert (world.count("prefill"), world.count("decode")) == (2, 2)


def test_what_is_not_known_calls_for_nobody() -> None:
    spec = service(standby=3)
    held = decide(spec, replace(signals(fleet(2, 2)), sample_age=None), Memory())
    assert held.pools == {"prefill": 2, "decode": 2}
    assert held.limited_by is LimitedBy.METRICS_STALE


def test_maxima_and_budget_rule_over_them() -> None:
    assert (
        total(
            decide(service(prefill=(1, 2), decode=(1, 2), standby=5, role_change=False), signals(fleet(1, 1)), Memory())
        )
        == 4
    )
    limited = decide(service(standby=5, accelerators=5, role_change=False), signals(fleet(1, 1)), Memory())
    assert total(limited) == 5
    assert limited.limited_by is LimitedBy.BUDGET


@given(st.integers(0, 5), st.floats(0, 200_000), st.integers(1, 6), st.integers(1, 6), st.booleans())
def test_with_them_there_are_never_fewer_and_never_more_than_they(
    standby: int, rate: float, prefill: int, decode: int, role_change: bool
) -> None:
    seen = signals(fleet(prefill, decode), rate=rate, at=NOW)
    bare = decide(service(role_change=role_change), seen, Memory())
    more = decide(service(role_change=role_change, standby=standby), seen, Memory())
    assert total(bare) <= total(more) <= total(bare) + 2 * standby

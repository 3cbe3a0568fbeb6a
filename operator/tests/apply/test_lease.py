"""Leadership: the rule as a table, and two replicas over one lease with a clock of our own."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_api import MemoryApi
from steelyard.apply.lease import DURATION_SECONDS, RENEW_DEADLINE_SECONDS, Elector, Sighting, Step, choose
from steelyard.observe.client import Unreachable


def lease(holder: str, renewed: str = "t1", duration: int | None = 15) -> dict[str, Any]:
    return {"spec": {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": duration}}


@pytest.mark.parametrize(
    ("held", "first_seen", "now", "step", "because"),
    [
        (None, 0, 0, Step.CREATE, "there is none"),
        (lease("me"), 0, 1000, Step.RENEW, "it is ours, however old"),
        (lease(""), 0, 0, Step.TAKE, "it was released"),
        (lease("other"), 0, 14.9, Step.WAIT, "its holder may still renew"),
        (lease("other"), 0, 15, Step.TAKE, "nothing came for its whole duration"),
        (lease("other", duration=60), 0, 15, Step.WAIT, "its holder chose the duration"),
        (lease("other", duration=None), 0, 15, Step.TAKE, "the usual duration"),
    ],
)
def test_the_rule(held: Any, first_seen: float, now: float, step: Step, because: str) -> None:
    sighting = Sighting((held["spec"]["holderIdentity"], "t1"), first_seen) if held else None
    assert choose(held, sighting, "me", now) is step, because


def electors(api: MemoryApi) -> tuple[Elector, Elector]:
    return Elector(api, "system", "operator", "a"), Elector(api, "system", "operator", "b")


def test_one_leads_the_other_takes_over_after_the_duration() -> None:
    api = MemoryApi()
    a, b = electors(api)
    assert a.step(0)
    assert not b.step(0)
    assert a.step(5)
    assert not b.step(5)  # the record changed at 5, so b counts from here
    assert not b.step(5 + DURATION_SECONDS - 0.1)
    assert b.step(5 + DURATION_SECONDS)
    assert api.body("Lease", "operator")["spec"]["holderIdentity"] == "b"
    assert not a.step(5 + DURATION_SECONDS + 1)


def test_a_leader_that_cannot_renew_stops_before_another_may_start() -> None:
    api = MemoryApi()
    a, b = electors(api)
    a.step(0)
    b.step(0)
    api.find = _unreachable  # type: ignore[method-assign]
    assert a.step(RENEW_DEADLINE_SECONDS - 1), "one failed renewal is no loss"
    assert not a.leading(RENEW_DEADLINE_SECONDS)
    assert RENEW_DEADLINE_SECONDS < DURATION_SECONDS


def _unreachable(*_: Any) -> Any:
    raise Unreachable(0, "no route")


def test_a_released_lease_is_taken_at_once() -> None:
    api = MemoryApi()
    a, b = electors(api)
    a.step(0)
    assert not b.step(1)
    a.release(2)
    assert not a.leading(2)
    assert b.step(3)


def test_releasing_what_is_not_held_touches_nothing() -> None:
    api = MemoryApi()
    a, b = electors(api)
    a.step(0)
    b.release(1)
    assert api.body("Lease", "operator")["spec"]["holderIdentity"] == "a"


def test_transitions_are_counted() -> None:
    api = MemoryApi()
    a, b = electors(api)
    a.step(0)
    a.step(2)
    b.step(2)
    b.step(2 + DURATION_SECONDS)
    assert api.body("Lease", "operator")["spec"]["leaseTransitions"] == 2


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 20), st.booleans()), max_size=40))
def test_never_two_leaders(steps: list[tuple[str, float, bool]]) -> None:
    """Property: whatever steps which replica takes, reached or not, at most one may write at any moment."""
    api = MemoryApi()
    replicas = dict(zip("ab", electors(api), strict=True))
    now = 0.0
    for name, wait, reached in steps:
        now += wait
        api.find = partial(MemoryApi.find, api) if reached else _unreachable  # type: ignore[method-assign]
        replicas[name].step(now)
        assert sum(replica.leading(now) for replica in replicas.values()) <= 1

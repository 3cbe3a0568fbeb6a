"""The steps of a rollout against a Deployment controller that does what the real one does with the two numbers of a step."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from steelyard.decide.rollout import Member, Pool, Step, allowed, served, steps

OLD, NEW = "old-group", "new-group"
LONG = 400  # turns within which every rollout is over


@pytest.mark.parametrize(
    ("surge", "unavailable", "replicas", "found"),
    [
        ("25%", "25%", 1, (1, 0)),
        ("25%", "25%", 4, (1, 1)),
        ("25%", "25%", 5, (2, 1)),
        (0, 0, 3, (0, 1)),
        (0, "10%", 3, (0, 1)),
        (2, 9, 3, (2, 3)),
        ("100%", "0%", 3, (3, 0)),
    ],
)
def test_shares_are_counted_as_a_deployment_counts_them(
    surge: int | str, unavailable: int | str, replicas: int, found: tuple[int, int]
) -> None:
    assert allowed(surge, unavailable, replicas) == found


def members(role: str, old: int = 0, new: int = 0, coming: int = 0, lost: int = 0) -> tuple[Member, ...]:
    """Pods of a pool: old and new ready ones, new ones that start, old ones that are not ready."""
    kinds = ((OLD, False, True, old), (NEW, True, True, new), (NEW, True, False, coming), (OLD, False, False, lost))
    return tuple(Member(role, group, fresh, ready) for group, fresh, ready, count in kinds for _ in range(count))


def pool(role: str, replicas: int, surge: int, unavailable: int, **pods: int) -> Pool:
    return Pool(replicas, surge, unavailable, members(role, **pods))


@dataclass(frozen=True)
class Case:
    given: str
    pools: dict[str, Pool]
    then: dict[str, Step]
    because: str


CASES = (
    Case(
        "nothing old",
        {"prefill": pool("prefill", 2, 1, 0, new=2), "decode": pool("decode", 2, 1, 0, new=1, coming=1)},
        {},
        "a start or a scaling is no rollout",
    ),
    Case(
        "it has just begun",
        {"prefill": pool("prefill", 4, 1, 1, old=4), "decode": pool("decode", 4, 1, 1, old=4)},
        {"prefill": Step(1, 0), "decode": Step(1, 0)},
        "one more each; nobody goes before a new one is ready, though one might be missing: the image may be bad",
    ),
    Case(
        "a new prefill is ready and no decode",
        {"prefill": pool("prefill", 2, 1, 0, old=2, new=1), "decode": pool("decode", 2, 1, 0, old=2, coming=1)},
        {"prefill": Step(1, 0), "decode": Step(1, 0)},
        "old prefill would leave old decode without work, and new prefill has nobody to hand over to",
    ),
    Case(
        "one of each is ready",
        {"prefill": pool("prefill", 2, 1, 0, old=2, new=1), "decode": pool("decode", 2, 1, 0, old=2, new=1)},
        {"prefill": Step(1, 1), "decode": Step(1, 1)},
        "half of either kind serves as much as all",
    ),
    Case(
        "no room for more",
        {"prefill": pool("prefill", 2, 0, 1, old=2), "decode": pool("decode", 4, 0, 2, old=4)},
        {"prefill": Step(0, 1), "decode": Step(0, 2)},
        "without surge an old one goes first, in ratio",
    ),
    Case(
        "old ones are not ready",
        {"prefill": pool("prefill", 2, 1, 0, lost=2), "decode": pool("decode", 2, 1, 0, old=1, lost=1)},
        {"prefill": Step(1, 2), "decode": Step(1, 1)},
        "they serve nobody and may hold the room that new ones need",
    ),
    Case(
        "decode alone is replaced by one that pairs with all",
        {
            "prefill": pool("prefill", 2, 1, 0, new=2),
            "decode": Pool(2, 1, 0, (*members("decode", old=1), Member("decode", NEW, False, True), *members("decode", new=1))),
        },
        {"decode": Step(1, 1)},
        "of old ones those of the group that prefill is in serve; which goes is not known, so the worse counts",
    ),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.given.replace(" ", "-"))
def test_a_step(case: Case) -> None:
    assert steps(case.pools) == case.then, case.because


@pytest.mark.parametrize(
    ("replicas", "pods", "step", "because"),
    [
        (4, {"old": 4}, Step(1, 0), "an ordinary beginning: all are old and serve"),
        (4, {"old": 3, "lost": 1}, Step(1, 1), "one that is not ready may go"),
        (2, {"new": 1, "old": 1, "lost": 1}, Step(1, 0), "an earlier spec is back: its pod still counts as available"),
        (4, {"new": 2, "old": 1, "lost": 2}, Step(1, 1), "three stay whoever is counted, the two that start may go"),
        (4, {"new": 4, "old": 2, "lost": 3}, Step(1, 0), "never below nothing"),
    ],
)
def test_at_a_standstill_nobody_who_is_ready_goes(
    replicas: int, pods: dict[str, int], step: Step, because: str
) -> None:
    found = steps({"decode": pool("decode", replicas, 1, 1, **pods)}, nobody_goes=True)["decode"]
    assert found == step, because
    available = pods.get("new", 0)  # as the ReplicaSet of the earlier spec counts at first
    for counted in range(available + 1):
        everything = sum(pods.values())
        gone = max(0, everything - (replicas - found.unavailable) - (available - counted))
        assert gone <= max(pods.get("lost", 0), everything - replicas), because


def test_without_room_beside_the_old_ones_an_old_one_goes_first_within_its_bound() -> None:
    waiting = Member("decode", NEW, new=True, ready=False, placed=False)
    full = replace(pool("decode", 4, 1, 1, old=4), members=(*members("decode", old=4), waiting))
    assert steps({"decode": full}) == {"decode": Step(1, 1)}, "its room is the new one's"
    single = replace(pool("decode", 1, 1, 0, old=1), members=(*members("decode", old=1), waiting))
    assert steps({"decode": single}) == {"decode": Step(1, 0)}, (
        "nothing may be missing here; status tells who has no room"
    )


def test_what_is_served_is_counted_in_pairs() -> None:
    ready = Counter({(OLD, "prefill"): 1, (OLD, "decode"): 3, (NEW, "prefill"): 1, (NEW, "decode"): 1})
    assert served(ready, {"prefill": 2, "decode": 4}) == Fraction(1, 2) + Fraction(1, 4)


@dataclass
class Controller:
    """A Deployment of one pool: pods by revision, the wanted one last, as (ready, not ready)."""

    replicas: int
    surge: int
    unavailable: int
    role: str
    groups: list[str]
    ready: list[int] = field(default_factory=list)
    coming: list[int] = field(default_factory=list)

    def pool(self) -> Pool:
        last = len(self.groups) - 1
        found = [
            Member(self.role, group, index == last, state)
            for index, group in enumerate(self.groups)
            for state, count in ((True, self.ready[index]), (False, self.coming[index]))
            for _ in range(count)
        ]
        return Pool(self.replicas, self.surge, self.unavailable, tuple(found))

    def turn(self, step: Step | None) -> None:
        """Do what deployment/rolling.go does; without a step new pods count as available, as they do at rest."""
        if step is not None and step.held:
            return
        surge, unavailable = (step.surge, step.unavailable) if step else (self.surge, self.unavailable)
        assert surge or unavailable, "the API server refuses 0 of both"
        old = sum(self.ready[:-1]) + sum(self.coming[:-1])
        new = self.ready[-1] + self.coming[-1]
        more = min(self.replicas + surge - old - new, self.replicas - new)
        if more > 0:
            self.coming[-1] += more
            return
        least = self.replicas - unavailable
        available = sum(self.ready[:-1]) + (0 if step else self.ready[-1])
        unready_new = new - (0 if step else self.ready[-1])
        most = old + new - least - unready_new
        for index in range(len(self.groups) - 1):  # those that are not ready go first
            gone = min(max(0, most), self.coming[index])
            self.coming[index] -= gone
            most -= gone
        spare = min(max(0, most), available - least)
        for index in range(len(self.groups) - 1):  # then the oldest
            gone = min(max(0, spare), self.ready[index])
            self.ready[index] -= gone
            spare -= gone


@st.composite
def worlds(draw: Any) -> tuple[list[Controller], bool]:
    """Pools of a service in which a new spec has just been written, and whether KV passes between old and new."""
    alike = draw(st.booleans())
    roles = draw(st.sampled_from((("aggregated",), ("prefill", "decode"))))
    surge = draw(st.one_of(st.integers(0, 3), st.sampled_from(("0%", "25%", "100%"))))
    unavailable = draw(st.one_of(st.integers(0, 2), st.sampled_from(("0%", "25%", "50%"))))
    found = []
    for role in roles:
        replicas = draw(st.integers(1, 9))
        groups = [OLD, OLD if alike else NEW]
        pool_allowed = allowed(surge, unavailable, replicas)
        found.append(Controller(replicas, *pool_allowed, role, groups, [replicas, 0], [0, 0]))
    return found, alike


def now_served(pools: list[Controller]) -> Fraction:
    ready: Counter[tuple[str, str]] = Counter()
    for one in pools:
        for group, count in zip(one.groups, one.ready, strict=True):
            ready[(group, one.role)] += count
    return served(ready, {one.role: one.replicas for one in pools})


@settings(max_examples=300, deadline=None)
@given(worlds(), st.randoms(use_true_random=False))
def test_every_rollout_ends_and_what_is_promised_serves_all_the_while(
    world: tuple[list[Controller], bool], chance: Any
) -> None:
    pools, _ = world
    floor = 1 - max(Fraction(one.unavailable, one.replicas) for one in pools)
    for _ in range(LONG):
        found = steps({one.role: one.pool() for one in pools})
        if not found:
            break
        for one in pools:
            if chance.random() < 0.7:  # controllers are not all equally quick
                one.turn(found.get(one.role))
        assert now_served(pools) >= floor
        for one in pools:
            assert sum(one.ready) >= one.replicas - one.unavailable
            assert sum(one.ready) + sum(one.coming) <= one.replicas + one.surge
            if one.coming[-1] and chance.random() < 0.5:  # one gets ready
                one.coming[-1] -= 1
                one.ready[-1] += 1
    assert [one.ready[0] + one.coming[0] for one in pools] == [0] * len(pools), "nothing old is left"


@settings(max_examples=200, deadline=None)
@given(worlds(), st.randoms(use_true_random=False))
def test_pods_that_never_get_ready_cost_nothing_where_there_is_room(
    world: tuple[list[Controller], bool], chance: Any
) -> None:
    """A bad image: the old ones stay, all of them; and the spec that follows replaces old and bad ones alike."""
    pools, _ = world
    if not all(one.surge for one in pools):
        return
    for _ in range(20):
        found = steps({one.role: one.pool() for one in pools})
        for one in pools:
            one.turn(found.get(one.role))
    assert [one.ready[0] for one in pools] == [one.replicas for one in pools]
    back = chance.random() < 0.5
    for one in pools:  # the earlier spec again, or a third one
        if back:
            for part in (one.groups, one.ready, one.coming):
                part.reverse()
        else:
            one.groups.append("third")
            one.ready.append(0)
            one.coming.append(0)
    for _ in range(LONG):
        found = steps({one.role: one.pool() for one in pools})
        if not found:
            break
        for one in pools:
            one.turn(found.get(one.role))
            if one.coming[-1] and chance.random() < 0.5:
                one.coming[-1] -= 1
                one.ready[-1] += 1
        assert now_served(pools) >= 1 - max(Fraction(one.unavailable, one.replicas) for one in pools)
    assert [sum(one.ready[:-1]) + sum(one.coming[:-1]) for one in pools] == [0] * len(pools)


def test_a_thousand_replicas_are_planned_at_once() -> None:
    found = steps({role: pool(role, 1000, 250, 250, old=1000, new=250) for role in ("prefill", "decode")})
    assert found == {"prefill": Step(250, 500), "decode": Step(250, 500)}


def test_a_pool_that_is_not_whole_gives_nothing_away() -> None:
    short = pool("decode", 4, 1, 0, old=3, new=1, lost=1)
    assert (
        steps({"prefill": replace(short, members=members("prefill", old=4, new=1)), "decode": short})[
            "decode"
        ].unavailable
        == 1
    )

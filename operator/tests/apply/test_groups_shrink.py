"""A LeaderWorkerSet takes its highest number away: how far one may shrink so that no replica goes in another's place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_api import MemoryApi
from steelyard.apply.carry_out import carry_out
from steelyard.apply.scale import scale
from steelyard.decide.grouped import reach, reachable
from steelyard.decide.scale.decision import Decision, LimitedBy, Memory, Withdrawal
from steelyard.decide.scale.signals import Phase, Replica
from steelyard.observe.client import Missing
from steelyard.observe.replicas import Engine

READY, STUCK, COMING, GOING = Phase.READY, Phase.UNSCHEDULABLE, Phase.STARTING, Phase.DRAINING
CASES = [
    ([READY, READY, STUCK], [2], 2, 2, "the stuck one is the last"),
    ([READY, STUCK, READY], [1], 2, 3, "the last one serves and the stuck one is not the last"),
    ([READY, STUCK, STUCK], [1, 2], 1, 1, "both of the last are stuck"),
    ([STUCK, READY, STUCK], [0, 2], 1, 2, "as far as the last are those that were chosen"),
    ([READY, READY, READY], [0], 2, 2, "one that serves goes for another"),
    ([READY, STUCK, READY, READY], [1, 0], 2, 3, "one of those that were chosen serves, so one goes"),
    ([READY, STUCK, COMING], [1], 2, 3, "one that comes is not given up for one that does not"),
    ([READY, READY, GOING], [1], 2, 2, "one that leaves serves nobody"),
    ([READY, READY], [], 2, 2, "the third was asked for and never made"),
]


def replica(number: int, phase: Phase) -> Replica:
    return Replica(f"chat-decode-{number}", "decode", "decode", "group", phase, 0.0)


@pytest.mark.parametrize(("phases", "chosen", "wanted", "expected", "because"), CASES)
def test_how_far_it_shrinks(phases: list[Phase], chosen: list[int], wanted: int, expected: int, because: str) -> None:
    there = [replica(number, phase) for number, phase in enumerate(phases)]
    asked = max(3, len(there))
    assert reach(there, [f"chat-decode-{number}" for number in chosen], asked, wanted) == expected, because


@pytest.mark.parametrize(("stuck", "expected"), [(2, ("decode 3→2",)), (1, ())])
def test_a_withdrawn_group_goes_alone_and_no_pod_is_marked(stuck: int, expected: tuple[str, ...]) -> None:
    api = MemoryApi()
    meta = {"name": "chat-decode", "namespace": "team-a"}
    spec = {"replicas": 3, "leaderWorkerTemplate": {"size": 2}}
    api.put({"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": meta, "spec": spec})
    engines = [
        Engine(replica(number, STUCK if number == stuck else READY), f"uid-{number}", 0.0, False) for number in range(3)
    ]
    asked, there = {"decode": 3}, [engine.replica for engine in engines]
    decision = reachable(given_up(f"chat-decode-{stuck}"), there, asked, {"decode"})
    done = carry_out(api, "team-a", "chat", engines, asked, decision, {"decode"})
    assert done.scaled == expected
    assert [write for write in api.writes if write.startswith("merge")] == []


def given_up(name: str) -> Decision:
    """What the law says of a decode replica that finds no room: two of three."""
    return decided(2, [name], [name])


def decided(number: int, remove: list[str], stuck: list[str]) -> Decision:
    """So many decode replicas, those to go, and those of them that find no room."""
    pools, why = {"decode": number}, tuple(Withdrawal(name, "0/2 nodes have one") for name in stuck)
    limited = LimitedBy.UNSCHEDULABLE
    return Decision(pools, pools, (), tuple(remove), why, (), "", limited, act=True, slots=None, memory=Memory())


def test_one_that_cannot_go_alone_is_told_as_kept_and_not_as_withdrawn() -> None:
    """Else it would be withdrawn at each tick, with an event a minute and a history of nothing else."""
    there = [replica(number, STUCK if number == 1 else READY) for number in range(3)]
    kept = reachable(given_up("chat-decode-1"), there, {"decode": 3}, {"decode"})
    assert (kept.pools, kept.remove, kept.withdrawn) == ({"decode": 3}, (), ())
    assert kept.desired == {"decode": 2}, "what the load needs is another matter"
    assert kept.terms[-1].words.startswith("decode stays at 3:")
    assert "chat-decode-1 cannot go alone" in kept.terms[-1].words
    gone = reachable(
        given_up("chat-decode-2"), [*there[:1], replica(1, READY), replica(2, STUCK)], {"decode": 3}, {"decode"}
    )
    assert gone == given_up("chat-decode-2")


def test_one_that_serves_goes_and_the_stuck_one_is_told_as_kept() -> None:
    """Of 0 to 3 the law gave up 0, which serves, and 1, which is stuck: 3 goes in the place of 0, and 2 in nobody's."""
    there = [replica(number, STUCK if number == 1 else READY) for number in range(4)]
    done = reachable(
        decided(2, ["chat-decode-1", "chat-decode-0"], ["chat-decode-1"]), there, {"decode": 4}, {"decode"}
    )
    assert (done.pools, done.remove, done.withdrawn) == ({"decode": 3}, ("chat-decode-0",), ())
    assert done.terms[-1].words == (
        "decode goes to 3 only: its set takes the highest number first, so chat-decode-1 cannot go alone"
    )


@given(st.lists(st.tuples(st.sampled_from([READY, STUCK, COMING]), st.booleans()), min_size=1, max_size=7))
def test_what_is_told_to_go_makes_up_what_the_number_loses(each: list[tuple[Phase, bool]]) -> None:
    """And no more replicas that serve are lost than were chosen of those."""
    there = [replica(number, phase) for number, (phase, _) in enumerate(each)]
    chosen = [one for one, (_, gone) in zip(there, each, strict=True) if gone]
    stuck = [one.name for one in chosen if one.phase is STUCK]
    law = decided(len(there) - len(chosen), [one.name for one in chosen], stuck)
    done = reachable(law, there, {"decode": len(there)}, {"decode"})
    number = done.pools["decode"]
    assert law.pools["decode"] <= number <= len(there)
    assert len(done.remove) == len(there) - number
    assert {one.pod for one in done.withdrawn} == set(stuck) & set(done.remove)
    serving = sum(one.phase is READY for one in there[number:])
    assert serving <= sum(one.phase is READY for one in chosen)


def test_pools_of_deployments_are_left_as_they_were_decided() -> None:
    there = [replica(number, STUCK if number == 1 else READY) for number in range(3)]
    assert reachable(given_up("chat-decode-1"), there, {"decode": 3}, ()) == given_up("chat-decode-1")


def test_the_number_of_a_set_that_has_just_gone_creates_nothing() -> None:
    api = MemoryApi()
    with pytest.raises(Missing, match="chat-decode is gone"):
        scale(api, "team-a", "chat-decode", 2, grouped=True)
    assert api.kinds() == []

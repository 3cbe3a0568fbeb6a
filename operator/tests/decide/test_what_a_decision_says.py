"""What a decision is said to change: what will be there, not what is wished for."""

from __future__ import annotations

from typing import Any

import pytest
from scale_worlds import fleet, replica, signals
from steelyard.decide.scale.decision import Decision, LimitedBy, Memory, Withdrawal
from steelyard.decide.scale.signals import Phase
from steelyard.decide.scaling import change_of


def decision(**given: Any) -> Decision:
    base: dict[str, Any] = {
        "desired": {"prefill": 2, "decode": 1},
        "pools": {"prefill": 2, "decode": 1},
        "relabel": (),
        "remove": (),
        "withdrawn": (),
        "terms": (),
        "ruled": "",
        "limited_by": LimitedBy.NONE,
        "act": True,
        "slots": None,
        "memory": Memory(),
    }
    return Decision(**(base | given))


@pytest.mark.parametrize(
    ("given", "said", "because"),
    [
        ({}, "no change", "nothing moves"),
        ({"desired": {"prefill": 4, "decode": 1}, "pools": {"prefill": 4, "decode": 1}}, "prefill 2→4", "growth"),
        (
            {"desired": {"prefill": 4, "decode": 1}, "pools": {"prefill": 3, "decode": 1}},
            "prefill 2→3",
            "the budget has room for one only",
        ),
        (
            {"desired": {"prefill": 1, "decode": 1}, "pools": {"prefill": 1, "decode": 1}, "remove": ("p0",)},
            "prefill 2→1",
            "one goes",
        ),
        (
            {"desired": {"prefill": 1, "decode": 2}, "relabel": (("p1", "decode"),)},
            "prefill 2→1, decode 1→2 (role change)",
            "pools stay as they are",
        ),
        (
            {
                "desired": {"prefill": 4, "decode": 1},
                "pools": {"prefill": 1, "decode": 1},
                "remove": ("p1",),
                "withdrawn": (Withdrawal("p1", "no room"),),
            },
            "prefill 2→1 (1 withdrawn)",
            "four are wanted, and none is asked for while there is no room",
        ),
    ],
)
def test_what_is_said(given: dict[str, Any], said: str, because: str) -> None:
    assert change_of(decision(**given), signals(fleet(2, 1))) == said, because


def test_replicas_that_were_asked_for_and_never_made_are_taken_back() -> None:
    seen = signals((*fleet(2, 1), replica("p2", "prefill", Phase.STARTING)))
    wanting = signals(seen.replicas, asked={"prefill": 5, "decode": 1})
    given = decision(desired={"prefill": 2, "decode": 1}, remove=("p2",))
    assert change_of(given, wanting) == "prefill 5→2"

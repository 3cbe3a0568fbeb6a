"""When a pod was ready first: told from look to look, since its condition holds the latest change only."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from steelyard.observe.first_ready import Known, first_ready

BEGAN, READY, LOST, AGAIN = 20, 40, 3000, 3010  # seconds
ZERO = datetime(2026, 1, 1, tzinfo=UTC)


def unix(second: int) -> float:
    return (ZERO + timedelta(seconds=second)).timestamp()


def pod(ready: bool | None, since: int = 0, began: int | None = BEGAN, restarts: int = 0) -> dict[str, Any]:
    def at(second: int) -> str:
        return (ZERO + timedelta(seconds=second)).isoformat().replace("+00:00", "Z")

    conditions = [{"type": "Ready", "status": str(ready), "lastTransitionTime": at(since)}]
    state = {"waiting": {"reason": "PodInitializing"}} if began is None else {"running": {"startedAt": at(began)}}
    return {
        "metadata": {"uid": "u", "name": "p"},
        "status": {
            "conditions": [] if ready is None else conditions,
            "containerStatuses": [{"name": "engine", "restartCount": restarts, "state": state}],
        },
    }


CREATED, LOADING, COMPUTING = pod(None, began=None), pod(False, 1, None), pod(False, 1)
SERVES, HICCUP, BACK = pod(True, READY), pod(False, LOST), pod(True, AGAIN)
AFTER_CRASH, UP_AGAIN = pod(False, LOST, LOST + 2, 1), pod(True, AGAIN, LOST + 2, 1)


@pytest.mark.parametrize(
    ("looks", "first", "because"),
    [
        ([CREATED], None, "not yet"),
        ([CREATED, LOADING, COMPUTING, SERVES], READY, "seen from its creation on"),
        ([COMPUTING, SERVES], READY, "an operator that begins learns from those that still start"),
        ([CREATED, SERVES], READY, "a quick one"),
        ([COMPUTING, SERVES, HICCUP, BACK], READY, "a hiccup is no start"),
        ([COMPUTING, SERVES, HICCUP], READY, "nor while it lasts"),
        ([SERVES], "unknown", "ready already when the operator began"),
        ([BACK], "unknown", "ready already, and not for the first time"),
        ([SERVES, HICCUP, BACK], "unknown", "what was not seen stays unknown"),
        ([HICCUP, BACK], "unknown", "not ready when the operator began, but it was before"),
        ([COMPUTING, HICCUP, BACK], "unknown", "both changes lie between two looks"),
        ([AFTER_CRASH, UP_AGAIN], "unknown", "another process"),
    ],
)
def test_what_is_known_after_some_looks(looks: list[dict[str, Any]], first: int | str | None, because: str) -> None:
    known: Known = {}
    for body in looks:
        known = first_ready([body], known)
    told: Known = {} if first == "unknown" else {"u": None if first is None else unix(int(first))}
    assert known == told, because


def test_pods_that_are_gone_are_forgotten() -> None:
    assert first_ready([], first_ready([SERVES], first_ready([COMPUTING], {}))) == {}


@given(st.lists(st.integers(1, 500), min_size=1, max_size=12), st.lists(st.integers(0, 4000), min_size=1, max_size=12))
def test_whatever_is_seen_when_no_later_readiness_is_taken_for_the_first(spans: list[int], looks: list[int]) -> None:
    """A pod that changes again and again, and an operator that looks at any times: a moment that it tells is at most as much
    too late as its looks lie apart."""
    changes = [
        BEGAN + sum(spans[: n + 1]) for n in range(len(spans))
    ]  # ready at the first of them, lost at the second, …
    moments = sorted(looks)
    known: Known = {}
    for moment in moments:
        passed = [change for change in changes if change <= moment]
        body = pod(len(passed) % 2 == 1, passed[-1] if passed else 1, BEGAN if moment >= BEGAN else None)
        known = first_ready([body], known)
        told = known.get("u")
        if told is not None:
            before = max((look for look in moments if look < changes[0]), default=None)
            assert before is not None, "a pod that was ready already tells nothing"
            after = min(look for look in moments if look >= changes[0])
            assert unix(changes[0]) <= told <= unix(after)

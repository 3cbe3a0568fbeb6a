"""What is noted of pods that leave, from the events of a watch as kubectl prints them."""

from __future__ import annotations

import io
import json
from fractions import Fraction
from typing import Any

import pytest

from e2e.departures import Departures, Served, follow
from e2e.errors import ToolError


def event(kind: str, deleted: bool = False, exits: tuple[int, ...] = (), uid: str = "1") -> dict[str, Any]:
    meta: dict[str, Any] = {"name": "pod", "uid": uid, "labels": {"pool": "decode"}}
    if deleted:
        meta |= {"deletionTimestamp": "2030-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30}
    states: list[dict[str, Any]] = [{"terminated": {"exitCode": code}} for code in exits] or [{"running": {}}]
    return {"type": kind, "object": {"metadata": meta, "status": {"containerStatuses": [{"state": s} for s in states]}}}


ADDED, TOLD = event("ADDED"), event("MODIFIED", deleted=True)


@pytest.mark.parametrize(
    ("given", "then", "because"),
    [
        ([ADDED], None, "a pod that stays has not left"),
        ([ADDED, event("MODIFIED", exits=(1,))], None, "a container that is restarted is no departure"),
        ([ADDED, TOLD], False, "it is still there"),
        ([ADDED, TOLD, event("MODIFIED", True, (0,)), event("DELETED", True, (0,))], True, "the usual way"),
        ([TOLD, event("MODIFIED", True, (0,)), event("DELETED", True)], True, "the last event may lack the status"),
        ([TOLD, event("DELETED", True, (137,))], False, "its program was killed"),
        ([TOLD, event("DELETED", True, (0, 1))], False, "one of its programs failed"),
        ([TOLD, event("DELETED", True)], False, "nobody knows how its program ended"),
        ([ADDED, event("DELETED", exits=(0,))], False, "deleted by force: it was given no time"),
        ([TOLD, {"type": "late"}, event("DELETED", True, (0,))], False, "it took longer than its grace"),
    ],
)  # fmt: skip
def test_an_orderly_departure(given: list[dict[str, Any]], then: bool | None, because: str) -> None:
    found, now = Departures(), 0.0
    for one in given:
        now += 10
        if one["type"] == "late":
            now += 30
        else:
            found.note(one, now)
    assert [one.orderly for one in found.all()] == ([] if then is None else [then]), because


def test_a_name_that_comes_back_is_another_pod() -> None:
    found = Departures()
    for one in (TOLD, event("DELETED", True, (0,)), event("ADDED", uid="2"), event("MODIFIED", True, uid="2")):
        found.note(one, 1.0)
    assert [one.gone for one in found.all()] == [1.0, None]
    assert found.leaving() == ("pod",)


def test_a_watch_that_ended_says_so_instead_of_nothing() -> None:
    found = Departures()
    follow(io.StringIO(f"{json.dumps(ADDED)}\n{json.dumps(TOLD)}\n"), found)
    with pytest.raises(ToolError, match="has ended"):
        found.all()


def serving(name: str, role: str, group: str, ready: bool = True, kind: str = "MODIFIED") -> dict[str, Any]:
    prefix = "serving.steelyard.dev"
    marks = {"pool": role, "role": role, "kv-group": group, "revision": group}
    meta = {"name": name, "uid": name, "labels": {f"{prefix}/{key}": value for key, value in marks.items()}}
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    return {"type": kind, "object": {"metadata": meta, "status": {"conditions": [condition]}}}


def test_what_could_be_served_is_counted_in_pairs_after_every_event() -> None:
    found = Served({"prefill": 1, "decode": 2})
    for one in (serving("p", "prefill", "old"), serving("d1", "decode", "old"), serving("d2", "decode", "old")):
        found.note(one, 0.0)
    assert found.now() == 1
    found.begin()
    found.note(serving("d3", "decode", "new"), 0.0)
    assert found.now() == 1, "a decode pod of another group has nobody to work with"
    found.note(serving("d1", "decode", "old", kind="DELETED"), 0.0)
    found.note(serving("p2", "prefill", "new"), 0.0)
    assert found.now() == 1, "half of each group"
    assert found.least == Fraction(1, 2), "there was a moment with half of one"
    found.note(serving("p2", "prefill", "new", ready=False), 0.0)
    assert found.now() == 1, "a probe that failed is no decision"
    found.note(serving("p2", "prefill", "new", kind="DELETED"), 0.0)
    assert found.now() == Fraction(1, 2)

"""Engine pods as the autoscaler sees them: phase, since when, and how long the start took."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from operator_bodies import merged
from steelyard.decide.scale.signals import Phase, StartUp
from steelyard.observe.replicas import DELETION_COST, engine_of, gateway_of

LABELS = {
    "serving.steelyard.dev/pool": "decode",
    "serving.steelyard.dev/role": "prefill",
    "serving.steelyard.dev/kv-group": "g",
    "serving.steelyard.dev/revision": "r",
}


def moment(second: int) -> str:
    return f"2026-01-01T00:00:{second:02}Z"


def unix(second: int) -> float:
    return datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC).timestamp()


def pod(change: dict[str, Any] | None = None) -> dict[str, Any]:
    """A pod that is ready since second 40."""
    base = {
        "metadata": {"name": "d-0", "uid": "u", "labels": LABELS, "creationTimestamp": moment(0)},
        "spec": {},
        "status": {
            "phase": "Running",
            "podIP": "10.0.0.9",
            "conditions": [
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": moment(3)},
                {"type": "Ready", "status": "True", "lastTransitionTime": moment(40)},
            ],
            "containerStatuses": [
                {"name": "engine", "restartCount": 0, "state": {"running": {"startedAt": moment(20)}}}
            ],
        },
    }
    return merged(base, change or {})


NOT_READY = [{"type": "Ready", "status": "False"}]
HICCUP = [{"type": "Ready", "status": "False", "lastTransitionTime": moment(50)}]
NO_ROOM = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes have one"}
CRASHING = {"name": "engine", "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
TOLD_TO_GO = {"deletionTimestamp": moment(50), "deletionGracePeriodSeconds": 20}


@pytest.mark.parametrize(
    ("change", "phase", "since", "words"),
    [
        ({}, Phase.READY, 40, ""),
        ({"status": {"conditions": NOT_READY}}, Phase.STARTING, 0, ""),
        ({"status": {"conditions": HICCUP}}, Phase.STARTING, 50, ""),
        ({"status": {"conditions": [NO_ROOM]}}, Phase.UNSCHEDULABLE, 0, "0/2 nodes have one"),
        ({"status": {"conditions": NOT_READY, "containerStatuses": [CRASHING]}}, Phase.FAILING, 0, "container engine"),
        ({"metadata": TOLD_TO_GO}, Phase.DRAINING, 30, ""),
    ],
)
def test_phases(change: dict[str, Any], phase: Phase, since: int, words: str) -> None:
    found = engine_of(pod(change))
    assert found is not None
    assert (found.replica.phase, found.replica.since) == (phase, unix(since))
    assert found.replica.words.startswith(words)
    assert (found.replica.pool, found.replica.role, found.replica.kv_group, found.uid) == (
        "decode",
        "prefill",
        "g",
        "u",
    )


@pytest.mark.parametrize("started", [True, False])
def test_an_engine_that_was_up_is_told_from_one_that_never_came_up(started: bool) -> None:
    """Both are not ready: the node of the first was lost, the second still starts."""
    engine = {"name": "engine", "restartCount": 0, "started": started, "state": {"running": {"startedAt": moment(20)}}}
    found = engine_of(pod({"status": {"conditions": HICCUP, "containerStatuses": [engine]}}))
    assert found is not None
    assert (found.replica.phase, found.replica.started) == (Phase.STARTING, started)


def test_a_start_is_told_by_phase() -> None:
    found = engine_of(pod(), first_ready=unix(40))
    assert found is not None
    assert found.replica.start == StartUp(scheduling=3.0, loading=17.0, warming=20.0)


@pytest.mark.parametrize("first", [None, unix(30)], ids=["nobody saw its start", "it lost its readiness since"])
def test_a_pod_that_may_have_been_ready_before_tells_no_start(first: float | None) -> None:
    """A hiccup after five hours would be learnt as a start of five hours."""
    found = engine_of(pod(), first)
    assert found is not None
    assert found.replica.start is None


@pytest.mark.parametrize(
    "change",
    [
        {"status": {"containerStatuses": [{"name": "engine", "restartCount": 1, "state": {"running": {"startedAt": moment(20)}}}]}},
        {"status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": moment(40)}]}},
        {"status": {"conditions": NOT_READY}},
    ],
    ids=["restarted", "no record of scheduling", "not ready"],
)  # fmt: skip
def test_a_start_that_cannot_be_told_apart_is_unknown(change: dict[str, Any]) -> None:
    found = engine_of(pod(change), first_ready=unix(40))
    assert found is not None
    assert found.replica.start is None


def test_a_pod_that_is_over_is_no_replica() -> None:
    """An evicted pod stays as an object after its Deployment has made another."""
    assert engine_of(pod({"status": {"phase": "Failed"}})) is None


def test_marks_of_earlier_decisions_are_seen() -> None:
    found = engine_of(pod({"metadata": {"annotations": {DELETION_COST: "-1000"}}}))
    assert found is not None
    assert found.marked


@pytest.mark.parametrize(
    ("change", "takes_requests"),
    [
        ({}, True),
        ({"status": {"conditions": NOT_READY}}, False),
        ({"metadata": TOLD_TO_GO}, False),
        ({"status": {"podIP": None}}, False),
    ],
)
def test_gateways_are_those_that_take_requests(change: dict[str, Any], takes_requests: bool) -> None:
    body = pod({"metadata": {"labels": {"serving.steelyard.dev/pool": None}}})
    found = gateway_of(merged(body, change))
    assert (found is not None) is takes_requests
    assert engine_of(merged(body, change)) is None
    assert gateway_of(pod()) is None

"""What pods and Deployments say about themselves, read into facts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from operator_bodies import merged
from steelyard.api.reasons import Reason
from steelyard.decide.snapshot import Weights
from steelyard.observe.pods import deployment_trouble, pod_of

POD = {
    "metadata": {
        "name": "chat-decode-x",
        "labels": {"serving.steelyard.dev/pool": "decode", "serving.steelyard.dev/role": "prefill"},
    },
    "spec": {"initContainers": [{"name": "weights"}]},
    "status": {"phase": "Pending"},
}


def weights(state: dict[str, Any]) -> dict[str, Any]:
    return {"status": {"initContainerStatuses": [{"name": "weights", "state": state}]}}


KILLED = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}


def engine(state: dict[str, Any], last: dict[str, Any] | None = None, ready: bool = False) -> dict[str, Any]:
    status = {"name": "engine", "state": state, "lastState": last or {}, "ready": ready}
    return {"status": {"containerStatuses": [status]}}


def fetched(started: bool) -> dict[str, Any]:
    """A running pod whose engine fetches the weights itself, into a volume that lives as long as the pod."""
    return {
        "spec": {"initContainers": None, "volumes": [{"name": "models", "emptyDir": {}}]},
        "status": {"phase": "Running", "containerStatuses": [{"name": "engine", "started": started}]},
    }


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, Weights.LOADING),
        (weights({"running": {}}), Weights.LOADING),
        (weights({"waiting": {"reason": "PodInitializing"}}), Weights.LOADING),
        (weights({"terminated": {"exitCode": 0}}), Weights.LOADED),
        (weights({"terminated": {"exitCode": 1}}), Weights.FAILED),
        (weights({"waiting": {"reason": "ImagePullBackOff"}}), Weights.FAILED),
        (weights({"waiting": {"reason": "CrashLoopBackOff"}}), Weights.FAILED),
        ({"spec": {"initContainers": None}, "status": {"phase": "Running"}}, Weights.LOADED),
        ({"spec": {"initContainers": None}}, Weights.LOADING),
        (fetched(started=False), Weights.LOADING),
        (fetched(started=True), Weights.LOADED),
    ],
)
def test_how_far_the_weights_are(change: dict[str, Any], expected: Weights) -> None:
    assert pod_of(merged(POD, change)).weights is expected


@pytest.mark.parametrize(
    ("change", "reason", "word"),
    [
        ({"status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                                     "message": "0/1 nodes are available: insufficient cpu"}]}},
         Reason.UNSCHEDULABLE, "insufficient cpu"),
        (engine({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}},
                {"terminated": {"reason": "Error", "exitCode": 3}}), Reason.ENGINE_CRASHING, "Error 3"),
        (engine({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}, KILLED),
         Reason.OUT_OF_MEMORY, "spec.decode.resources.limits.memory"),
        (engine(KILLED), Reason.OUT_OF_MEMORY, "container engine needed more memory than its limit"),
        (engine({"running": {}}, KILLED), Reason.OUT_OF_MEMORY, "was killed"),
        (engine({"running": {}}, KILLED, ready=True), None, ""),
        (engine({"waiting": {"reason": "ErrImagePull", "message": "no such image"}}), Reason.IMAGE_UNAVAILABLE,
         "container engine: no such image"),
        (engine({"waiting": {"reason": "CreateContainerConfigError", "message": "secret keys not found"}}),
         Reason.PODS_REFUSED, "secret keys"),
        (engine({"waiting": {"reason": "ContainerCreating"}}), None, ""),
        (engine({"running": {}}), None, ""),
    ],
)  # fmt: skip
def test_what_keeps_a_pod_from_starting(change: dict[str, Any], reason: Reason | None, word: str) -> None:
    trouble = pod_of(merged(POD, change)).trouble
    assert (trouble.reason if trouble else None) == reason
    assert word in (trouble.message if trouble else "")


def test_a_message_does_not_change_with_every_attempt() -> None:
    def seen(port: int) -> str:
        message = f"dial tcp: read udp 10.77.0.11:{port}->10.255.255.53:53: i/o timeout"
        trouble = pod_of(merged(POD, engine({"waiting": {"reason": "ErrImagePull", "message": message}}))).trouble
        return trouble.message if trouble else ""

    assert seen(40001) == seen(58366)
    assert "10.255.255.53:53: i/o timeout" in seen(1)


def test_identity_readiness_and_leaving() -> None:
    pod = pod_of(merged(POD, {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}))
    assert (pod.pool, pod.role, pod.ready, pod.terminating) == ("decode", "prefill", True, False)
    assert pod_of(merged(POD, {"metadata": {"deletionTimestamp": "now"}})).terminating
    assert not pod_of(POD).ready


@pytest.mark.parametrize(
    ("conditions", "reason"),
    [
        ([], None),
        ([{"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}], None),
        ([{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}],
         Reason.START_DEADLINE_EXCEEDED),
        ([{"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}], Reason.PODS_REFUSED),
    ],
)  # fmt: skip
def test_what_keeps_a_deployment_from_going_on(conditions: list[dict[str, str]], reason: Reason | None) -> None:
    trouble = deployment_trouble({"conditions": conditions})
    assert (trouble.reason if trouble else None) == reason


def test_what_a_loader_said_at_its_end_is_told() -> None:
    state = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container"}}
    last = {
        "terminated": {"reason": "Error", "exitCode": 1, "message": "org/model@main: the hub says 401; name a token\n"}
    }
    status = {"initContainerStatuses": [{"name": "weights", "state": state, "lastState": last}]}
    trouble = pod_of({"metadata": {"name": "p", "labels": {}}, "spec": {}, "status": status}).trouble
    assert trouble is not None
    assert "(last exit: Error 1: org/model@main: the hub says 401; name a token)" in trouble.message


def test_the_phases_of_a_start_are_read_from_the_pods_own_times() -> None:
    def at(second: int) -> str:
        return f"2026-01-01T00:00:{second:02d}Z"

    body = {
        "metadata": {"name": "p", "labels": {}, "creationTimestamp": at(0)},
        "spec": {},
        "status": {
            "conditions": [
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": at(2)},
                {"type": "Ready", "status": "True", "lastTransitionTime": at(58)},
            ],
            "initContainerStatuses": [
                {"name": "weights", "state": {"terminated": {"exitCode": 0, "startedAt": at(5), "finishedAt": at(25)}}}
            ],
            "containerStatuses": [{"name": "engine", "restartCount": 0, "state": {"running": {"startedAt": at(30)}}}],
        },
    }
    assert pod_of(body).start is None, "whether it is ready for the first time is not known"
    first = datetime(2026, 1, 1, 0, 0, 50, tzinfo=UTC).timestamp()
    start = pod_of(body, first).start
    assert start is not None
    assert (start.scheduled, start.pulled, start.weights, start.ready, start.total) == (2, 8, 20, 20, 50)
    body["status"]["containerStatuses"][0]["restartCount"] = 1  # type: ignore[index]
    assert pod_of(body, first).start is None, "Ready then tells of another start"

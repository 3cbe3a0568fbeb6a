"""A Job is read into what status says of it: its own conditions, its newest pod's state, the last line of the log."""

from __future__ import annotations

from typing import Any

import pytest
from memory_api import MemoryApi
from quantize_world import ended, running
from steelyard.api.reasons import Reason
from steelyard.decide.snapshot import Job, Trouble
from steelyard.observe.jobs import job_of

Body = dict[str, Any]
WAITING = {
    "phase": "Pending",
    "containerStatuses": [{"name": "quantize", "state": {"waiting": {"reason": "ContainerCreating"}}}],
}
NO_IMAGE = {
    "phase": "Pending",
    "containerStatuses": [
        {"name": "quantize", "state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}, "ready": False}
    ],
}
NOT_MOUNTED = {**WAITING, "conditions": [{"type": "PodReadyToStartContainers", "status": "False"}]}
MOUNTED = {**WAITING, "conditions": [{"type": "PodReadyToStartContainers", "status": "True"}]}
INIT_IMAGE = {
    "phase": "Pending",
    "conditions": [{"type": "PodReadyToStartContainers", "status": "True"}],
    "initContainerStatuses": [{"name": "weights", "state": {"waiting": {"reason": "ContainerCreating"}}}],
    "containerStatuses": [{"name": "quantize", "state": {"waiting": {"reason": "PodInitializing"}}}],
}
NO_NODE_YET = {
    "phase": "Pending",
    "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}],
}
BRINGING = {"phase": "Pending", "initContainerStatuses": [{"name": "weights", "state": {"running": {}}}]}
NOT_BROUGHT = {
    "phase": "Failed",
    "initContainerStatuses": [
        {"name": "weights", "state": {"terminated": {"exitCode": 1, "message": "the hub answers 401"}}}
    ],
}
NO_IMAGE_WORDS = "container quantize: not found"
KILLED = {
    "phase": "Running",
    "containerStatuses": [{"name": "quantize", "state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}],
}
KILLED_WORDS = "container quantize needed more memory than its limit and was killed; its memory limit is too low"
LOG = "layer 11 of 30\nlayer 12 of 30\n"


SPEC = {
    "initContainers": [{"name": "weights", "image": "gateway:1"}],
    "containers": [{"name": "quantize", "image": "mirror/quantize:1"}],
    "volumes": [
        {"name": "models", "persistentVolumeClaim": {"claimName": "models"}},
        {"name": "token", "secret": {"secretName": "hub"}},
        {"name": "scratch", "emptyDir": {}},
    ],
}


def pod(number: int, status: Body) -> Body:
    meta = {
        "name": f"job-{number}",
        "namespace": "team-a",
        "labels": {"batch.kubernetes.io/job-name": "job"},
        "creationTimestamp": f"2026-01-01T00:00:0{number}Z",
    }
    return {"kind": "Pod", "metadata": meta, "spec": SPEC, "status": status}


def body(condition: str = "", message: str = "", **meta: Any) -> Body:
    held = [{"type": condition, "status": "True", "message": message}] if condition else []
    return {"metadata": {"name": "job", **meta}, "status": {"conditions": held}}


def of_another(made: Body) -> Body:
    """The same pod, of a Job that had this one's name and is gone."""
    labels = {**made["metadata"]["labels"], "batch.kubernetes.io/controller-uid": "another"}
    return {**made, "metadata": {**made["metadata"], "labels": labels}}


CASES = [
    (body(), [], (False, False, False, ""), "no pod yet"),
    (body(), [pod(0, WAITING)], (False, False, False, "its pod starts"), "the kubelet says no more"),
    (
        body(),
        [pod(0, NOT_MOUNTED)],
        (False, False, False, "its pod waits for its network and volumes (claim models, Secret hub)"),
        "what may be missing is named",
    ),
    (body(), [pod(0, MOUNTED)], (False, False, False, "its pod waits for the image mirror/quantize:1"), "images come"),
    (body(), [pod(0, INIT_IMAGE)], (False, False, False, "its pod waits for the image gateway:1"), "one after another"),
    (body(), [pod(0, NO_NODE_YET)], (False, False, False, "its pod waits for a node"), "somebody holds it back"),
    (body(), [pod(0, BRINGING)], (False, False, False, "its pod brings the weights"), "the loader runs"),
    (
        body(creationTimestamp="1970-01-01T00:00:07Z"),
        [],
        (False, False, False, "", None, 7.0),
        "since when nobody has made one",
    ),
    (
        body(creationTimestamp="1970-01-01T00:00:07Z", uid="one"),
        [of_another(pod(0, running()))],
        (False, False, False, "", None, 7.0),
        "the pod is of another Job",
    ),
    (
        body(),
        [pod(0, NO_IMAGE)],
        (False, False, False, NO_IMAGE_WORDS, Trouble(Reason.IMAGE_UNAVAILABLE, NO_IMAGE_WORDS)),
        "why it does not start",
    ),
    (body(), [pod(0, KILLED)], (False, False, False, KILLED_WORDS), "it is started again by itself"),
    (body(), [pod(0, running())], (False, False, True, "layer 12 of 30"), "the last layer of the log"),
    (
        body(),
        [pod(0, ended(137, "layer 3 of 30", "OOMKilled"))],
        (False, False, False, "layer 3 of 30"),
        "between two tries",
    ),
    (body(), [pod(0, ended(75)), pod(1, running())], (False, False, True, "layer 12 of 30"), "the newest pod counts"),
    (body("Complete"), [pod(0, ended(0))], (True, False, False, ""), "done"),
    (
        body("Failed", "limit"),
        [pod(0, ended(1, "a\nerror: b"))],
        (False, True, False, "a\nerror: b"),
        "the end of the log",
    ),
    (body("Failed", "limit"), [pod(0, NOT_BROUGHT)], (False, True, False, "the hub answers 401"), "the loader's end"),
    (body("Failed", "limit"), [], (False, True, False, "limit"), "the Job's own word where no pod is left"),
    (body("FailureTarget", "exit 1"), [], (False, True, False, "exit 1"), "about to fail"),
    (
        body("Failed"),
        [pod(0, ended(1, "")), pod(1, ended(137, "", "OOMKilled"))],
        (False, True, False, "container quantize ended with OOMKilled 137"),
        "no words but the kubelet's",
    ),
]


@pytest.mark.parametrize(("job", "pods", "expected", "because"), CASES)
def test_how_far_it_is(job: Body, pods: list[Body], expected: tuple[Any, ...], because: str) -> None:
    api = MemoryApi()
    api.logs = {(f"job-{number}", "quantize"): LOG for number in range(2)}
    assert job_of(api, job, pods) == Job("job", *expected), because


def test_a_log_that_cannot_be_read_is_no_progress_and_no_failure() -> None:
    assert job_of(MemoryApi(), body(), [pod(0, running())]) == Job("job", False, False, True, "")


def test_only_the_end_of_a_long_log_is_told() -> None:
    log = "\n".join(f"line {number} {'x' * 300}" for number in range(20))
    told = job_of(MemoryApi(), body("Failed"), [pod(0, ended(1, log))]).words
    assert len(told) <= 800
    assert told.endswith("x")

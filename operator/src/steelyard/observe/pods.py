"""Read what a pod and a Deployment say about themselves into the few facts that decisions need."""

import re
from collections.abc import Mapping
from datetime import datetime

from steelyard.api import labels
from steelyard.api.reasons import Reason
from steelyard.decide.snapshot import Pod, Start, Trouble, Weights
from steelyard.observe.client import Body

IMAGE_REASONS = frozenset({"ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull"})
WAITING: Mapping[str, Reason] = {
    **dict.fromkeys(IMAGE_REASONS, Reason.IMAGE_UNAVAILABLE),
    "CrashLoopBackOff": Reason.ENGINE_CRASHING,
    "CreateContainerConfigError": Reason.PODS_REFUSED,
    "CreateContainerError": Reason.PODS_REFUSED,
    "RunContainerError": Reason.ENGINE_CRASHING,
}
OUT_OF_MEMORY = "OOMKilled"  # in the kubelet's words
WEIGHTS_CONTAINER, ENGINE_CONTAINER, MODELS_VOLUME = "weights", "engine", "models"
MESSAGE_LIMIT = 500
OVER = frozenset({"Failed", "Succeeded"})  # phases of pods that were evicted, never admitted, or ended
CONNECTION = re.compile(r"[0-9a-f.:\[\]]+->")  # local address and port of a failed connection


def over(body: Body) -> bool:
    """Whether a pod will never run again; such objects stay until somebody collects them, and stand for nothing."""
    return (body.get("status") or {}).get("phase") in OVER


def pod_of(body: Body, first_ready: float | None = None) -> Pod:
    """Read one pod, of an engine or a gateway; `first_ready` is when it was ready first, where that is known (unix seconds)."""
    meta, status = body["metadata"], body.get("status") or {}
    marks = meta.get("labels") or {}
    conditions = {c["type"]: c for c in status.get("conditions") or []}
    ready = ready_condition(body)
    return Pod(
        name=meta["name"],
        pool=marks.get(labels.POOL, ""),
        role=marks.get(labels.ROLE, ""),
        ready=ready.get("status") == "True",
        terminating="deletionTimestamp" in meta,
        weights=_weights(body),
        trouble=_trouble(status, conditions, marks.get(labels.POOL)),
        revision=marks.get(labels.REVISION, ""),
        kv_group=marks.get(labels.KV_GROUP, ""),
        ready_since=seconds(ready.get("lastTransitionTime")) if ready.get("status") == "True" else None,
        start=start_of(body, first_ready),
    )


def seconds(text: str | None) -> float | None:
    """A time of the API server in unix seconds."""
    return datetime.fromisoformat(text).timestamp() if text else None


def ready_condition(body: Body) -> Body:
    """What a pod says of its readiness, and since when; empty where nobody has said anything yet."""
    conditions: list[Body] = (body.get("status") or {}).get("conditions") or []
    return next((c for c in conditions if c["type"] == "Ready"), {})


def engine_status(body: Body) -> Body:
    """The status of the engine's container; its `started` is False until the startup probe has succeeded."""
    containers: list[Body] = (body.get("status") or {}).get("containerStatuses") or []
    return next((c for c in containers if c["name"] == ENGINE_CONTAINER), {})


def start_of(body: Body, first_ready: float | None) -> Start | None:
    """How long each phase of the start took until the pod was ready for the first time (`observe/first_ready.py`).

    None where that moment is not known, and after a restart, since the engine's process then is another one.
    """
    status, engine = body.get("status") or {}, engine_status(body)
    placed: Body = next((c for c in status.get("conditions") or [] if c["type"] == "PodScheduled"), {})
    created = seconds(body["metadata"].get("creationTimestamp"))
    scheduled = seconds(placed.get("lastTransitionTime"))
    began = seconds(((engine.get("state") or {}).get("running") or {}).get("startedAt"))
    if engine.get("restartCount") or created is None or scheduled is None or began is None or first_ready is None:
        return None
    weights = 0.0
    for container in status.get("initContainerStatuses") or []:
        done = (container.get("state") or {}).get("terminated") or {}
        first, last = seconds(done.get("startedAt")), seconds(done.get("finishedAt"))
        if container["name"] == WEIGHTS_CONTAINER and first is not None and last is not None:
            weights = max(0.0, last - first)
    return Start(
        scheduled=max(0.0, scheduled - created),
        pulled=max(0.0, began - scheduled - weights),
        weights=weights,
        ready=max(0.0, first_ready - began),
        created=created,
    )


def deployment_trouble(status: Body) -> Trouble | None:
    """Say what keeps a Deployment from going on: pods that the API server refuses, or the deadline of its roll-out."""
    conditions = {c["type"]: c for c in status.get("conditions") or []}
    failure = conditions.get("ReplicaFailure", {})
    if failure.get("status") == "True":
        return Trouble(Reason.PODS_REFUSED, _short(failure.get("message", "")))
    moving = conditions.get("Progressing", {})
    if moving.get("status") == "False" and moving.get("reason") == "ProgressDeadlineExceeded":
        return Trouble(Reason.START_DEADLINE_EXCEEDED, _short(moving.get("message", "")))
    return None


def _weights(body: Body) -> Weights:
    """Tell how far the weights are.

    Those on a claim are there as soon as the pod runs. An engine that fetches them itself has them when it answers, not
    when its process runs (kserve/kserve#1859: ready while nothing was loaded).
    """
    status = body.get("status") or {}
    for container in status.get("initContainerStatuses") or []:
        if container["name"] != WEIGHTS_CONTAINER:
            continue
        state = container.get("state") or {}
        if (state.get("terminated") or {}).get("exitCode") == 0:
            return Weights.LOADED
        failed = (state.get("waiting") or {}).get("reason") in WAITING or "terminated" in state
        return Weights.FAILED if failed else Weights.LOADING
    bringing = any(c["name"] == WEIGHTS_CONTAINER for c in body["spec"].get("initContainers") or [])
    fetching = any(v["name"] == MODELS_VOLUME and "emptyDir" in v for v in body["spec"].get("volumes") or [])
    running = status.get("phase") == "Running" and not bringing
    answers = any(c["name"] == ENGINE_CONTAINER and c.get("started") for c in status.get("containerStatuses") or [])
    return Weights.LOADED if running and (answers or not fetching) else Weights.LOADING


def _trouble(status: Body, conditions: Mapping[str, Body], pool: str | None) -> Trouble | None:
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable":
        return Trouble(Reason.UNSCHEDULABLE, _short(scheduled.get("message", "")))
    for kind in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(kind) or []:
            state = container.get("state") or {}
            waiting = state.get("waiting") or {}
            last = state.get("terminated") or (container.get("lastState") or {}).get("terminated") or {}
            if last.get("reason") == OUT_OF_MEMORY and not container.get("ready"):
                remedy = f"raise spec.{pool}.resources.limits.memory" if pool else "its memory limit is too low"
                message = f"container {container['name']} needed more memory than its limit and was killed; {remedy}"
                return Trouble(Reason.OUT_OF_MEMORY, message)
            if waiting.get("reason") not in WAITING:
                continue
            message = waiting.get("message") or waiting["reason"]
            if last:
                said = f": {last['message'].strip()}" if last.get("message") else ""
                message += f" (last exit: {last.get('reason', '')} {last.get('exitCode', '')}{said})"
            return Trouble(WAITING[waiting["reason"]], _short(f"container {container['name']}: {message}"))
    return None


def _short(text: str) -> str:
    """Cut a message, and take out of it what changes with every attempt, so that status is not written each time."""
    text = CONNECTION.sub("", text)
    return text if len(text) <= MESSAGE_LIMIT else text[: MESSAGE_LIMIT - 1] + "…"

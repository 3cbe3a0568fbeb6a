"""Engine pods as the autoscaler sees them: how far each is, since when, and how long it took to get there."""

from dataclasses import dataclass
from sys import intern

from steelyard.api import labels
from steelyard.api.reasons import Reason
from steelyard.decide.scale.signals import Phase, Replica, StartUp
from steelyard.observe.client import Body
from steelyard.observe.pods import engine_status, over, pod_of, seconds, start_of

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine pod: what the law sees of it, and what carrying out a decision needs."""

    replica: Replica
    uid: str
    created: float  # unix seconds
    marked: bool  # carries a deletion cost of an earlier decision


@dataclass(frozen=True, slots=True)
class Gateway:
    """One gateway pod that takes requests."""

    name: str
    address: str
    created: float
    uid: str
    admission: str = ""  # the decode slots that its pod was annotated with last


def engine_of(body: Body, first_ready: float | None = None) -> Engine | None:
    """Read an engine's pod; None for a gateway's, and for one that is over. `first_ready` is when it was ready for the first
    time, where that is known (unix seconds)."""
    meta, status = body["metadata"], body.get("status") or {}
    marks = meta.get("labels") or {}
    if not marks.get(labels.POOL) or over(body):
        return None
    created = seconds(meta.get("creationTimestamp")) or 0.0
    conditions = {c["type"]: c for c in status.get("conditions") or []}
    phase, since, words = _phase(body, created, conditions)
    replica = Replica(
        name=meta["name"],
        pool=intern(marks[labels.POOL]),  # words that thousands of pods have in common
        role=intern(marks.get(labels.ROLE, "")),
        kv_group=intern(marks.get(labels.KV_GROUP, "")),
        phase=phase,
        since=since,
        started=bool(engine_status(body).get("started")),
        revision=intern(marks.get(labels.REVISION, "")),
        words=words,
        start=_start(body, first_ready) if phase is Phase.READY and since == first_ready else None,
    )
    return Engine(replica, meta["uid"], created, DELETION_COST in (meta.get("annotations") or {}))


def gateway_of(body: Body) -> Gateway | None:
    """Read a gateway's pod; None where it takes no requests, or is an engine's, be it a follower of one that spans nodes."""
    meta, status = body["metadata"], body.get("status") or {}
    marks = meta.get("labels") or {}
    pod = pod_of(body)
    if (
        pod.pool
        or marks.get(labels.COMPONENT) == labels.FOLLOWER
        or not pod.ready
        or pod.terminating
        or not status.get("podIP")
    ):
        return None
    told = (meta.get("annotations") or {}).get(labels.ADMISSION, "")
    return Gateway(meta["name"], status["podIP"], seconds(meta.get("creationTimestamp")) or 0.0, meta["uid"], told)


def _phase(body: Body, created: float, conditions: dict[str, Body]) -> tuple[Phase, float, str]:
    """How far the pod is, since when, and the cluster's words where something is wrong; first row that holds:

    | pod | phase | since |
    |---|---|---|
    | was told to go | draining | then |
    | condition Ready | ready | the condition's transition |
    | the scheduler finds no node | unschedulable | creation |
    | a container cannot start or ends again and again | failing | creation |
    | else | starting | creation, or when it stopped being ready: it has its deadline again, a hiccup is no lost replica |
    """
    meta = body["metadata"]
    if "deletionTimestamp" in meta:
        # The time in it is when patience ends: the order was given that much earlier.
        ends = seconds(meta["deletionTimestamp"]) or created
        return Phase.DRAINING, ends - float(meta.get("deletionGracePeriodSeconds") or 0), ""
    ready = conditions.get("Ready", {})
    if ready.get("status") == "True":
        return Phase.READY, seconds(ready.get("lastTransitionTime")) or created, ""
    trouble = pod_of(body).trouble
    if trouble is None:
        return Phase.STARTING, max(created, seconds(ready.get("lastTransitionTime")) or created), ""
    phase = Phase.UNSCHEDULABLE if trouble.reason is Reason.UNSCHEDULABLE else Phase.FAILING
    return phase, created, trouble.message


def _start(body: Body, first_ready: float | None) -> StartUp | None:
    """The phases of a start as the law knows them; images are part of loading."""
    start = start_of(body, first_ready)
    return None if start is None else StartUp(start.scheduled, start.pulled + start.weights, start.ready)

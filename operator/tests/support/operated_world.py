"""One service, its operator and a cluster that does what clusters do, with time, chance and faults in the caller's hands.

The operator is the real one from the watch's events to the writes: `Services`, the work queue, and the reconciler. Around
it: an API server of dictionaries, a Deployment controller, a garbage collector, watches that may lose what happened, calls
that fail before or after they were carried out, processes that die there, and a second replica that was not meant to write.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

from memory_api import Key, MemoryApi
from operator_bodies import SITE, service_body, simulated
from steelyard.api.labels import MANAGED_BY, MANAGER
from steelyard.catalog.accelerators import ACCELERATORS
from steelyard.observe.client import ApiError, Body, Conflict, NotLeading, Unreachable
from steelyard.observe.resources import CHILD_KINDS
from steelyard.run.health import Health
from steelyard.run.queue import WorkQueue
from steelyard.run.reconcile import Reconciler, Result
from steelyard.run.rest import Rest
from steelyard.run.watching import Services

NAMESPACE, NAME = "team-a", "chat"
KEY = (NAMESPACE, NAME)
RESYNC_SECONDS = 300.0
START = datetime(2026, 1, 1, tzinfo=UTC)
CHILDREN = {resource.kind for resource in CHILD_KINDS}
WATCHED = CHILDREN | {"ControllerRevision", "Pod"}


class Killed(BaseException):
    """The operator's process ends here, whatever it was about to do."""


class Fault(Enum):
    """What becomes of one call."""

    CONFLICT = "409, not carried out"
    LOST = "504, not carried out"
    LOST_ANSWER = "504, carried out"
    DEPOSED = "the lease is lost, nothing is sent"
    KILLED = "the process dies before"
    KILLED_AFTER = "the process dies after"


RAISES = {
    Fault.CONFLICT: Conflict(409, "somebody was faster"),
    Fault.LOST: Unreachable(504, "gateway timeout"),
    Fault.LOST_ANSWER: Unreachable(504, "gateway timeout"),
    Fault.DEPOSED: NotLeading(0, "not leading"),
    Fault.KILLED: Killed(),
    Fault.KILLED_AFTER: Killed(),
}
AFTERWARDS = (Fault.LOST_ANSWER, Fault.KILLED_AFTER)


WRITES = ("apply", "create", "replace", "delete")


@dataclass(frozen=True)
class Disturbance:
    """What happens around one call of a run, counted from 0 among all or among the writes: a fault, or what others do."""

    number: int
    what: Fault | Callable[[], None]
    of_writes: bool = False


class World:
    """The cluster and the operator in it."""

    def __init__(self) -> None:
        self.api = MemoryApi()
        for accelerator in ACCELERATORS.values():
            self.api.put(accelerator.manifest())
        self.now = 0.0
        self.ready = True  # whether pods that are started get ready
        self._births = 0
        self._labelled: dict[Key, Body] = {}
        self.restart()

    # The operator.

    def restart(self) -> None:
        """Begin anew, with nothing but what the API server holds."""
        self.queue: WorkQueue[tuple[str, str]] = WorkQueue()
        health = Health(loop_turned=0)
        self.rest = Rest(RESYNC_SECONDS, lambda: self.now)
        self.services = Services(self._ask, self.queue.forget, health, self.rest.told)
        self.lose_watches()

    def _ask(self, key: tuple[str, str], after: float = 0.0, urgent: bool = False) -> None:
        self.queue.ask(key, self.now, after, urgent)

    def lose_watches(self) -> None:
        """Every watch begins anew: of our kinds what is there is listed (B13), of children it is told that changes were missed."""
        self.api.told.clear()
        self._labelled = {key: body for key, body in self.api.objects.items() if self._is_labelled_child(body)}
        for body in [*self.api.objects.values()]:
            if body["kind"] not in WATCHED:
                self._hear(None, body)
        for kind in sorted(WATCHED):
            self.services.missed(kind)

    def hear(self, most: int | None = None) -> None:
        """Deliver events in their order, `most` of them, or all."""
        for kind, body in self.api.told[:most]:
            self._hear(kind, body)
        del self.api.told[:most]

    def _hear(self, kind: str | None, body: Body) -> None:
        meta = body["metadata"]
        if body["kind"] == "InferenceService":
            self.services.service(kind, body)
        elif body["kind"] == "Accelerator":
            self.services.missed("Accelerator")
        elif body["kind"] in WATCHED:
            key = (body["kind"], meta.get("namespace", ""), meta["name"])
            before = self._labelled.pop(key, None)
            if self._is_labelled_child(body):
                self._labelled[key] = body
                self.services.child(body["kind"], meta)
            elif before is not None:
                self.services.child(
                    before["kind"], before["metadata"]
                )  # an object that lost its label is told as gone, as it was before

    @staticmethod
    def _is_labelled_child(body: Body) -> bool:
        return body["kind"] in WATCHED and (body["metadata"].get("labels") or {}).get(MANAGED_BY) == MANAGER

    def run(self, *disturbances: Disturbance) -> bool:
        """Run what is due next, if anything is; time goes on until then. Gives whether the run came to its end."""
        due = self.queue.next_due()
        if due is None:
            return True
        self.now = max(self.now, due)
        key = self.queue.take(self.now)
        assert key == KEY
        try:
            with self._disturbed(disturbances):
                result = self.reconcile(self.queue.failures(key))
        except Killed:
            self.restart()
            return False
        except ApiError:
            self.queue.failed(key, self.now, chance=0.5)
            return False
        self.queue.succeeded(key, self.now, result.again_after)
        return True

    def reconcile(self, faults: int = 0) -> Result:
        """One look, by whichever replica."""
        operator = Reconciler(self.api, SITE, "operator-1", RESYNC_SECONDS, rest=self.rest)
        return operator(*KEY, faults, START + timedelta(seconds=self.now))

    @contextmanager
    def _disturbed(self, disturbances: tuple[Disturbance, ...]) -> Any:
        seen = {False: -1, True: -1}  # calls, writes

        def struck(verb: str, afterwards: bool) -> None:
            for one in disturbances:
                here = one.number == seen[one.of_writes] and (verb in WRITES or not one.of_writes)
                if here and (one.what in AFTERWARDS) == afterwards:
                    self._strike(one.what)

        def before(verb: str, place: str) -> None:
            seen[False] += 1
            seen[True] += verb in WRITES
            struck(verb, afterwards=False)

        def after(verb: str, place: str) -> None:
            struck(verb, afterwards=True)

        self.api.before, self.api.after = before, after
        try:
            yield
        finally:
            self.api.before = self.api.after = _quietly

    def _strike(self, what: Fault | Callable[[], None]) -> None:
        if isinstance(what, Fault):
            raise RAISES[what]
        hooks = self.api.before, self.api.after
        self.api.before = self.api.after = _quietly
        try:
            what()
        finally:
            self.api.before, self.api.after = hooks

    # The users and the cluster.

    def service(self) -> Body | None:
        """The service as it is stored, if it is."""
        return self.api.objects.get(("InferenceService", *KEY))

    def create(self, spec: Body, annotations: dict[str, str] | None = None) -> None:
        """Create the service, each time with another uid."""
        self._births += 1
        self.api.put(service_body(simulated(spec), uid=f"uid-{NAME}-{self._births}", annotations=annotations or {}))

    def children(self, kind: str | None = None) -> list[Body]:
        """The objects in the service's namespace besides itself, its pods and its revisions."""
        return [
            body
            for (what, _, _), body in self.api.objects.items()
            if what in CHILDREN and kind in (None, what) and body["metadata"].get("namespace") == NAMESPACE
        ]

    def control(self) -> None:
        """Do the Deployment controller's work and the kubelets': pods are as many as wanted, and all of today's template."""
        wanted = {}
        for body in self.children("Deployment"):
            count = body["spec"]["replicas"]
            template = body["spec"]["template"]["metadata"]["labels"]
            wanted |= {f"{body['metadata']['name']}-{index}": dict(template) for index in range(count)}
            ready = count if self.ready else 0
            status = {
                "readyReplicas": ready,
                "updatedReplicas": count,
                "observedGeneration": body["metadata"]["generation"],
            }
            self.api.edit("Deployment", body["metadata"]["name"], {"status": status}, "deployment-controller")
        for _, _, name in [key for key in self.api.objects if key[0] == "Pod" and key[2] not in wanted]:
            self.api.remove("Pod", name)
        for name, labels in wanted.items():
            condition = {"type": "Ready", "status": "True" if self.ready else "False"}
            pod = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
                "spec": {},
                "status": {"phase": "Running", "conditions": [condition]},
            }
            self.api.put(pod)


def _quietly(verb: str, place: str) -> None:
    """No disturbance."""

"""What every reconcile has seen last of its service, for the autoscaler, which decides for all of them at every tick.

A reconcile follows every change of a pod within a second and heals what was missed, so a tick reads nothing of the API
server: asking for all pods of a large fleet every few seconds would cost more than everything else.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from steelyard.api import names
from steelyard.api.accelerator import Accelerator
from steelyard.api.service import InferenceService
from steelyard.decide import slots
from steelyard.decide.plan import Plan
from steelyard.decide.rollout_pause import Judged
from steelyard.decide.snapshot import Snapshot
from steelyard.observe.client import Body
from steelyard.observe.replicas import engine_of, gateway_of
from steelyard.observe.signals import Pods
from steelyard.observe.snapshot import Observation

Key = tuple[str, str]  # namespace, name


@dataclass(frozen=True)
class Admission:
    """The gateways' ConfigMap: which object it is, and the decode slots that it tells them, if any."""

    uid: str
    slots: int | None


@dataclass(frozen=True)
class View:
    """One service as a reconcile saw it; `service` is None where nothing may be decided: refused, or paused. `asks` is what
    its spec says, whether refused or not; None where it cannot be read."""

    body: Body
    service: InferenceService | None
    accelerators: Mapping[str, Accelerator | None]
    pods: Pods
    rolling: bool = False  # its pods are being replaced, or will be
    asks: InferenceService | None = None
    admission: Admission | None = None  # None: the ConfigMap was not there yet


def view(seen: Observation, plan: Plan, before: View | None) -> View:
    """Keep what the autoscaler needs of a look; the objects themselves are let go. `before` is the view of the last look:
    what this one left out is as it was."""
    snapshot = seen.snapshot
    meta = snapshot.service["metadata"]
    firsts = ((body, seen.first_ready.get(body["metadata"]["uid"])) for body in seen.pods)
    engines = tuple(engine for body, first in firsts if (engine := engine_of(body, first)) is not None)
    gateways = tuple(gateway for body in seen.pods if (gateway := gateway_of(body)) is not None)
    asked = {d.pool: d.replicas for d in snapshot.deployments if d.pool and d.replicas_written}
    grouped = frozenset(d.pool for d in snapshot.deployments if d.grouped)
    free = plan.service is not None and not plan.paused and not plan.refusals
    if plan.service is not None and plan.quantizing is not None:
        free = free and plan.service.spec.roles.keys() <= asked.keys()  # the pools of the spec are not all there yet
    return View(
        body={
            "apiVersion": snapshot.service["apiVersion"],
            "kind": snapshot.service["kind"],
            "metadata": {key: meta.get(key) for key in ("name", "namespace", "uid", "resourceVersion", "generation")},
            "status": snapshot.service.get("status") or {},
        },
        service=plan.service if free else None,
        accelerators=snapshot.accelerators,
        pods=Pods(meta["namespace"], meta["name"], engines, gateways, asked, grouped),
        rolling=_rolling(snapshot, plan),
        asks=plan.service,
        admission=_admission(seen, meta["name"], before),
    )


def _rolling(snapshot: Snapshot, plan: Plan) -> bool:
    """Whether pods of an earlier spec are being replaced, or will be by what this look renders. LeaderWorkerSets replace theirs
    by themselves: leaders of another revision than the set's tell of it."""
    wanted = {d.pool: d.revision for d in snapshot.deployments if d.grouped}
    leaders = (pod for pod in snapshot.pods if pod.pool in wanted and not pod.terminating)
    return plan.render or plan.rollout is not None or any(pod.revision != wanted[pod.pool] for pod in leaders)


def _admission(seen: Observation, service: str, before: View | None) -> Admission | None:
    if "ConfigMap" in seen.left_out:
        return before.admission if before is not None else None
    body = seen.children.get(("ConfigMap", names.gateway_settings(service)))
    if body is None:
        return None
    return Admission(body["metadata"]["uid"], slots.read((body.get("data") or {}).get(slots.FILE)))


class Fleet:
    """The latest view of every service; written by reconciles, read by the autoscaler, in different threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._views: dict[Key, View] = {}
        self._rolling: dict[Key, Judged | None] = {}

    def put(self, key: Key, seen: View) -> None:
        """Keep the newest view of a service."""
        with self._lock:
            self._views[key] = seen

    def find(self, key: Key) -> View | None:
        """The latest view of one service."""
        with self._lock:
            return self._views.get(key)

    def forget(self, key: Key) -> None:
        """Drop a service that is gone."""
        with self._lock:
            self._views.pop(key, None)
            self._rolling.pop(key, None)

    def watch(self, key: Key, rolling: bool) -> None:
        """Say whether a service is in a rollout that waits for its objectives, so that somebody judges it."""
        with self._lock:
            if rolling:
                self._rolling.setdefault(key, None)
            else:
                self._rolling.pop(key, None)

    def watched(self) -> frozenset[Key]:
        """The services of such rollouts."""
        with self._lock:
            return frozenset(self._rolling)

    def judge(self, key: Key, found: Judged) -> None:
        """Keep what was judged of such a service; without an answer the earlier one stays, and grows old."""
        with self._lock:
            if key in self._rolling:
                self._rolling[key] = found

    def judged(self, key: Key) -> Judged | None:
        """What was judged last, where it is watched."""
        with self._lock:
            return self._rolling.get(key)

    def views(self) -> dict[Key, View]:
        """All views as they are now."""
        with self._lock:
            return dict(self._views)

"""One service with its pods, a Prometheus of dictionaries, and the operator with its autoscaler, for tick by tick tests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from memory_api import MemoryApi
from operator_bodies import SITE, service_body, simulated
from steelyard.api.labels import ROLE
from steelyard.catalog.accelerators import ACCELERATORS
from steelyard.observe.answers import Unanswered, Vector
from steelyard.observe.demand import Windows
from steelyard.observe.prometheus import Query
from steelyard.observe.readings import NOW, SPANS, over
from steelyard.run.autoscaler import Autoscaler
from steelyard.run.fleet import Fleet
from steelyard.run.reconcile import Reconciler

TICK = 5.0
START = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
NAMES = {query.text: name for span in SPANS for name, query in over(span).items()} | {
    query.text: name for name, query in NOW.items()
}
PER_POD = (
    "running",
    "waiting",
    "kv_use",
    "generated",
    "inflow",
    "step_seconds",
    "prefills",
    "prefill_seconds",
    "computed",
)


class ScaledWorld:
    """Everything but time passes by itself: `pass_time` lets pods start and leave, and ticks."""

    def __init__(self, spec: dict[str, Any] | None = None, start_seconds: float = 20.0) -> None:
        self.api = MemoryApi()
        for accelerator in ACCELERATORS.values():
            self.api.put(accelerator.manifest())
        base = {"objectives": {"timeToFirstToken": "500ms", "timePerOutputToken": "50ms"}}
        self.api.put(service_body(simulated(base | (spec or {}))))
        self.now = START
        self.start_seconds = start_seconds
        self.running = {"prefill": 0.0, "decode": 0.0}  # sequences of all replicas of a role
        self.kv_use = 0.0  # share of each replica's KV capacity
        self.arriving = 0.0  # uncached tokens a second
        self.down: str | None = None  # why Prometheus does not answer
        self.told = True  # whether gateways give their windows
        self.missing: set[str] = set()  # pods without samples
        self.born: dict[str, float] = {}
        self.fleet = Fleet()
        self.restart()

    def restart(self) -> None:
        """Begin with a new operator."""
        self.fleet = Fleet()
        self.reconcile = Reconciler(self.api, SITE, "operator-1", 300, self.fleet)
        self.autoscaler = Autoscaler(self.api, self.fleet, lambda: self.ask, self.windows, "operator-1", TICK)

    def look(self) -> None:
        """Let the controllers and the reconcile do their work, as after any change."""
        moment = datetime.fromtimestamp(self.now, UTC)
        if not self.born:
            self.reconcile("team-a", "chat", 0, moment)
        self._run_pods()
        self.reconcile("team-a", "chat", 0, moment)

    def tick(self, times: int = 1) -> None:
        """Let time pass in ticks, each after a look."""
        for _ in range(times):
            self.look()
            self.autoscaler.tick(self.now)
            self.now += TICK

    def asked(self) -> dict[str, int]:
        return {pool: self.api.body("Deployment", f"chat-{pool}")["spec"]["replicas"] for pool in ("prefill", "decode")}

    def roles(self) -> dict[str, int]:
        found = {"prefill": 0, "decode": 0}
        for pod in self.pods():
            found[pod["metadata"]["labels"][ROLE]] += 1
        return found

    def pods(self) -> list[dict[str, Any]]:
        return [
            body
            for (kind, _, name), body in self.api.objects.items()
            if kind == "Pod" and (name.startswith(("chat-prefill", "chat-decode")))
        ]

    def status(self) -> dict[str, Any]:
        return dict(self.api.body("InferenceService", "chat").get("status") or {})

    def condition(self, kind: str) -> tuple[str, str]:
        found = {c["type"]: (c["status"], c["reason"]) for c in self.status()["conditions"]}
        return found[kind]

    def ask(self, query: Query) -> Vector:
        if self.down is not None:
            raise Unanswered(self.down)
        name = NAMES.get(query.text)
        return {} if name is None else self._rows(name)

    def windows(self, address: str) -> Windows | None:
        """Two gateways share the arrivals."""
        return (self.now, (self.arriving / 2 / 4,) * 960) if self.told else None

    def _rows(self, name: str) -> Vector:
        service = ("team-a", "chat")
        measured = [pod for pod in self._measured() if pod not in self.missing]
        if name == "age":
            return {(*service, pod): 1.0 for pod in measured}
        if name == "samples":
            return {(*service, pod): min(4.0, (self.now - self.born[pod]) // TICK) for pod in measured}
        if name == "targets":
            return {service: float(len(measured))} if measured else {}
        if name in ("queued_requests", "queued_tokens"):
            return {(*service, role): 0.0 for role in ("prefill", "decode")}
        if name == "ttft_judged":
            return {(*service, "true"): 100.0}
        if name in PER_POD:
            return {
                (*service, pod): self._of_pod(name, pod) for pod in measured if pod.startswith(("chat-p", "chat-d"))
            }
        return {service: {"uncached": self.arriving, "arrived": self.arriving / 1000}.get(name, 1000.0)}

    def _of_pod(self, name: str, pod: str) -> float:
        role = self.api.body("Pod", pod)["metadata"]["labels"][ROLE]
        share = self.running[role] / max(1, sum(p["metadata"]["labels"][ROLE] == role for p in self.pods()))
        if name == "running":
            return share
        if name == "kv_use":
            return self.kv_use
        if name == "generated":
            return share * 30 if role == "decode" else 0.0
        return 0.0

    def _measured(self) -> list[str]:
        """Pods that are ready, gateways too, after their first scrape."""
        found = []
        for (kind, _, name), body in self.api.objects.items():
            ready = kind == "Pod" and any(c["status"] == "True" for c in body["status"]["conditions"])
            if ready:
                found.append(name)
        return found

    def _run_pods(self) -> None:
        """Do the work of the Deployment controller and the kubelets."""
        for (kind, namespace, name), body in list(self.api.objects.items()):
            if kind != "Deployment":
                continue
            template = body["spec"]["template"]["metadata"]["labels"]
            mine = [key for key in self.api.objects if key[0] == "Pod" and key[2].startswith(f"{name}-x")]
            while len(mine) < body["spec"]["replicas"]:
                pod = f"{name}-x{len(self.born)}"
                self.born[pod] = self.now
                self.api.put(self._pod(pod, namespace, dict(template)))
                mine.append(("Pod", namespace, pod))
            for key in sorted(mine, key=self._order)[: len(mine) - body["spec"]["replicas"]]:
                del self.api.objects[key]
            for key in mine:
                if key in self.api.objects:
                    self.api.objects[key]["status"] = self._pod_status(key[2])
            count = body["spec"]["replicas"]
            done = {"readyReplicas": count, "updatedReplicas": count, "observedGeneration": 1}
            self.api.objects[kind, namespace, name]["status"] = done

    def _order(self, key: Any) -> tuple[bool, int, float]:
        """Whom a ReplicaSet takes first: not ready, of lowest cost, newest."""
        body = self.api.objects[key]
        ready = any(c["status"] == "True" for c in body.get("status", {}).get("conditions", ()))
        cost = (body["metadata"].get("annotations") or {}).get("controller.kubernetes.io/pod-deletion-cost", "0")
        return ready, int(cost), -self.born[key[2]]

    def _pod(self, name: str, namespace: str, labels: dict[str, str]) -> dict[str, Any]:
        created = datetime.fromtimestamp(self.now, UTC).isoformat().replace("+00:00", "Z")
        meta = {"name": name, "namespace": namespace, "labels": labels, "creationTimestamp": created}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {}, "status": self._pod_status(name)}

    def _pod_status(self, name: str) -> dict[str, Any]:
        ready_at = self.born[name] + (0 if self.born[name] == START else self.start_seconds)
        moment = datetime.fromtimestamp(ready_at, UTC).isoformat().replace("+00:00", "Z")
        ready = {"type": "Ready", "status": "True" if self.now >= ready_at else "False", "lastTransitionTime": moment}
        return {"phase": "Running", "podIP": "10.0.0.1", "conditions": [ready]}

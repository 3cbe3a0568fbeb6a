"""What runs, seen once every two seconds from outside: the API server's lists of three kinds, whatever the number of services."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from steelyard.api.labels import API_VERSION, DECODE, POOL, PREFILL, ROLE, SERVICE
from steelyard.observe.wire import Broken, Wire, find

from e2e.platform import Platform

EVERY_SECONDS = 2.0
_BOUND_SECONDS = 10.0  # for one list


@dataclass(frozen=True)
class Sample:
    """One service at one moment."""

    at: float  # seconds since the load's start
    prefill: int  # ready, by what pods do now
    decode: int
    asked: int  # replicas that the Deployments ask for
    held: int  # engine pods that have an accelerator: on a node, and not ended
    attained: float | None  # percent over the service's own window
    because: str  # of the latest decision

    @property
    def coming(self) -> int:
        """Those that have an accelerator and do not serve: starting, or on their way out."""
        return self.held - self.prefill - self.decode


class Watch:
    """Takes samples in a thread of its own until it is left; `samples` is by service, in order of time."""

    def __init__(self, platform: Platform, namespace: str, names: Iterable[str], clock: Callable[[], float]) -> None:
        self._wire = Wire(find(str(platform.cluster.kubeconfig)), _BOUND_SECONDS)
        self._namespace, self._clock = namespace, clock
        self.samples: dict[str, list[Sample]] = {name: [] for name in names}
        self.services: dict[str, dict[str, Any]] = {}  # as seen last
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join(4 * _BOUND_SECONDS)

    def _run(self) -> None:
        while not self._end.is_set():
            began = time.monotonic()
            with suppress(Broken, ValueError):  # one is missed: the one before stands for its time
                self._look()
            self._end.wait(max(0.1, EVERY_SECONDS - (time.monotonic() - began)))

    def _look(self) -> None:
        at = self._clock()
        self.services = {
            body["metadata"]["name"]: body for body in self._list(f"/apis/{API_VERSION}", "inferenceservices")
        }
        pools, pods = self._list("/apis/apps/v1", "deployments"), self._list("/api/v1", "pods")
        for name, samples in self.samples.items():
            samples.append(sample(at, self.services.get(name, {}), _of(name, pools), _of(name, pods)))

    def _list(self, prefix: str, kind: str) -> list[dict[str, Any]]:
        """Raises Broken, or ValueError on an answer that is no list."""
        answer = self._wire.exchange("GET", f"{prefix}/namespaces/{self._namespace}/{kind}", {})
        if answer.status != 200:
            raise ValueError(f"{kind}: status {answer.status}")
        return list(json.loads(answer.body)["items"])


def _of(service: str, bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of one service that belong to an engine pool."""
    labelled = ((body["metadata"].get("labels", {}), body) for body in bodies)
    return [body for labels, body in labelled if labels.get(SERVICE) == service and POOL in labels]


def sample(at: float, service: Mapping[str, Any], pools: list[dict[str, Any]], pods: list[dict[str, Any]]) -> Sample:
    """One service's sample from its objects."""
    status = service.get("status", {})
    serving = [pod["metadata"]["labels"].get(ROLE) for pod in pods if _serves(pod)]
    return Sample(
        at=at,
        prefill=serving.count(PREFILL),
        decode=serving.count(DECODE),
        asked=sum(int(pool["spec"].get("replicas", 1)) for pool in pools),
        held=sum(_holds(pod) for pod in pods),
        attained=status.get("objectives", {}).get("attainment"),
        because=next(iter(status.get("decision", {}).get("because", ())), ""),
    )


def _serves(pod: Mapping[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]


def _holds(pod: Mapping[str, Any]) -> bool:
    return bool(pod["spec"].get("nodeName")) and pod.get("status", {}).get("phase") in ("Pending", "Running")

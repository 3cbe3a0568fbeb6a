"""A service under an open-loop load on a local cluster: what scenarios disturb, and how they look into it meanwhile.

The load's clients stand on a node, and so do the looks at metrics: nothing passes through the API server. The simulated engines
keep the time of a slow accelerator, so a small machine is not the bottleneck.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import pytest
from steelyard.api.labels import COMPONENT, ENGINE_PORT, GATEWAY_METRICS_PORT, GATEWAY_PORT, POOL, SERVICE

from e2e.cluster.local.cluster import LocalCluster
from e2e.cluster.local.machine import Machine
from e2e.load import Bounds, Outcome, Result, Running, Schedule, Spec, Target, start_load
from e2e.load.running import Mark
from e2e.platform import Platform

GATEWAY = "gateway"
NODE = "node1"
BROKEN = (Outcome.FAILED, Outcome.REFUSED, Outcome.TIMED_OUT, Outcome.HUNG)
_FETCH = """
import json, sys, urllib.request
def page(url):
    try:
        return urllib.request.urlopen(url, timeout=5).read().decode()
    except OSError:
        return ""
print(json.dumps([page(url) for url in sys.argv[1:]]))
"""


@dataclass(frozen=True)
class Pod:
    """A pod of the service."""

    name: str
    address: str
    node: str
    restarts: int
    ready: bool
    ended: str  # why its container ended last; empty: it never did


@dataclass(frozen=True)
class Stage:
    """The service under load."""

    platform: Platform
    namespace: str
    name: str
    spec: Spec
    load: Running

    @property
    def machine(self) -> Machine:
        """The node on which the clients stand."""
        return self._machine_of(NODE)

    @property
    def machines(self) -> list[Machine]:
        """All nodes: a scenario before may have added one, and pods spread over them."""
        names = self.platform.kubectl("get", "nodes", "-o", "jsonpath={.items[*].metadata.name}").split()
        return [self._machine_of(name) for name in names]

    def pods(self, part: str) -> list[Pod]:
        """The pods of a pool, or the gateways, that are not leaving."""
        chosen = f"{COMPONENT}={GATEWAY}" if part == GATEWAY else f"{POOL}={part}"
        found = self.platform.items("pod", self.namespace, f"{SERVICE}={self.name},{chosen}")
        return [_pod(body) for body in found if "deletionTimestamp" not in body["metadata"]]

    def metrics(self, part: str, pattern: str) -> dict[str, float]:
        """For each pod of a part the sum of its samples that match; one that does not answer counts 0."""
        port = GATEWAY_METRICS_PORT if part == GATEWAY else ENGINE_PORT
        found: dict[str, float] = {}
        by_node = sorted((pod for pod in self.pods(part) if pod.address), key=lambda pod: pod.node)
        for node, group in groupby(by_node, key=lambda pod: pod.node):  # policies let a node reach its own pods only
            pods = list(group)
            urls = [f"http://{pod.address}:{port}/metrics" for pod in pods]
            pages = json.loads(self._machine_of(node).run_in_network(sys.executable, "-c", _FETCH, *urls))
            found |= {pod.name: _sum(page, pattern) for pod, page in zip(pods, pages, strict=True)}
        return found

    def metric(self, part: str, pattern: str) -> float:
        """The same over all pods of a part."""
        return sum(self.metrics(part, pattern).values())

    def failed(self) -> float:
        """How many requests failed, as the gateways count."""
        return self.metric(GATEWAY, 'steelyard_gateway_requests_total{.*outcome="failed"')

    def broken(self) -> int:
        """How many requests of the load were not answered."""
        outcomes = self.load.progress().outcomes
        return sum(outcomes[one] for one in BROKEN)

    def completed(self) -> int:
        """How many were answered."""
        return self.load.progress().outcomes[Outcome.COMPLETED]

    def probe(self, schedule: Schedule, **changes: Any) -> Running:
        """More requests beside the load; `changes` are fields of its Spec."""
        return start_load(replace(self.spec, schedule=schedule, **changes), self.machine.network_command)

    def at(self, address: str, name: str | None = None) -> Target:
        """A gateway or service other than the load's, that serves `name` (as the load's does)."""
        return Target(f"http://{address}:{GATEWAY_PORT}", name or self.name)

    def asked(self, schedule: Schedule, **changes: Any) -> Result:
        """The same, and what became of them."""
        with self.probe(schedule, **changes) as run:
            return run.result(seconds=120)

    def revived(self, before: Pod, part: str) -> Pod:
        """Wait until a pod has been restarted and is ready again."""

        def again() -> Pod | None:
            found = next((pod for pod in self.pods(part) if pod.name == before.name), None)
            return found if found is not None and found.restarts > before.restarts and found.ready else None

        found = self.platform.wait_for(f"{before.name} to be restarted and ready", again, 120)
        assert isinstance(found, Pod)
        return found

    def _machine_of(self, node: str) -> Machine:
        assert isinstance(self.platform.cluster, LocalCluster)
        return self.platform.cluster.machine(node)

    def goes_on(self) -> None:
        """Wait for answers to requests of after now."""
        done = self.completed() + self.load.progress().under_way
        self.platform.wait_for("answers after it", lambda: self.completed() > done, 60)


@contextmanager
def staged(
    platform: Platform, manifests: str, namespace: str, name: str, schedule: Schedule, **more: Any
) -> Iterator[Stage]:
    """Make the services of `manifests`, put one under load, and remove them in the end. `more` are fields of the load's Spec."""
    if not isinstance(platform.cluster, LocalCluster):
        pytest.skip("END-TO-END SKIPPED: the clients of this load stand on a node of the local cluster")
    platform.apply(manifests, namespace)
    for service in platform.items("inferenceservice", namespace):
        platform.wait_available(service["metadata"]["name"], namespace)
    platform.wait_for("every replica to be ready", lambda: _complete(platform, namespace), 90)
    address = platform.get("service", name, namespace)["spec"]["clusterIP"]
    target = Target(f"http://{address}:{GATEWAY_PORT}", name)
    spec = Spec(target, schedule, Bounds(request=70, silence=40), title=namespace, **more)
    try:
        with start_load(spec, platform.cluster.machine(NODE).network_command) as load:
            found = Stage(platform, namespace, name, spec, load)
            platform.wait_for("streams under way", lambda: found.completed() >= 4, 60)
            yield found
    finally:
        platform.kubectl("delete", "namespace", namespace, "--wait=false")


def mark_before(result: Result, moment: float) -> Mark | None:
    """What was noted last before a moment of a run."""
    return max((mark for mark in result.marks if mark.at <= moment), key=lambda mark: mark.at, default=None)


def _pod(body: dict[str, Any]) -> Pod:
    status = body["status"]
    container = (status.get("containerStatuses") or [{}])[0]
    ended = container.get("lastState", {}).get("terminated", {})
    return Pod(
        name=body["metadata"]["name"],
        address=status.get("podIP", ""),
        node=body["spec"].get("nodeName", ""),
        restarts=container.get("restartCount", 0),
        ready=bool(container.get("ready")),
        ended=ended.get("reason", ""),
    )


def _sum(page: str, pattern: str) -> float:
    return sum(float(value) for value in re.findall(rf"^{pattern}.* (\S+)$", page, re.MULTILINE))


def _complete(platform: Platform, namespace: str) -> bool:
    deployments = platform.items("deployment", namespace)
    return bool(deployments) and all(
        one["status"].get("readyReplicas", 0) == one["spec"]["replicas"] == one["status"].get("replicas")
        for one in deployments
    )

"""A service that the autoscaler scales, as scenarios look at it: its numbers, its roles, what is told, and the ticks.

A real Prometheus and an operator that reads it stand on the cluster inside `monitored`; outside, services keep their numbers.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest
from rich.console import Console
from steelyard.api.labels import COMPONENT, POOL, ROLE, SERVICE

from e2e import monitoring
from e2e.cluster.local.cluster import LocalCluster
from e2e.load.running import Launch
from e2e.platform import SYSTEM_NAMESPACE, Platform, PlatformError

_TICKS = re.compile(r"^steelyard_tick_seconds_count (\S+)$", re.MULTILINE)
OPERATORS = f"app.kubernetes.io/name=steelyard,{COMPONENT}=operator"
_FETCH = """
import sys, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=5).read().decode())
except OSError:
    pass  # it leaves, or has not begun
"""


@dataclass(frozen=True)
class Look:
    """What one look at a service saw."""

    status: dict[str, Any]
    asked: dict[str, int]  # replicas, by pool
    pods: dict[str, dict[str, Any]]  # engines by name, leaving ones too

    @property
    def roles(self) -> Counter[str]:
        """Engines that stay, by what they do now."""
        return Counter(pod["metadata"]["labels"][ROLE] for pod in self.staying.values())

    @property
    def staying(self) -> dict[str, dict[str, Any]]:
        """Engines that were not told to go."""
        return {name: pod for name, pod in self.pods.items() if "deletionTimestamp" not in pod["metadata"]}

    @property
    def rollout(self) -> dict[str, Any]:
        """What status tells of a rollout; empty: none is under way."""
        return dict(self.status.get("rollout") or {})

    def condition(self, kind: str) -> tuple[str, str]:
        """(status, reason) of a condition; empty words where it is not there."""
        found = {c["type"]: (c["status"], c["reason"]) for c in self.status.get("conditions", ())}
        return found.get(kind, ("", ""))

    def told(self, action: str, applied: bool) -> bool:
        """Whether some decision of the history did that: a decision in status may be replaced before anybody looks."""
        history = self.status.get("history", ())
        return any(action in one["action"] and one["applied"] is applied for one in history)


@dataclass(frozen=True)
class Scaled:
    """One service; at every look the budget holds."""

    platform: Platform
    namespace: str
    name: str
    budget: int

    @property
    def address(self) -> str:
        """Where clients call it."""
        return str(self.platform.get("service", self.name, self.namespace)["spec"]["clusterIP"])

    def mode(self, mode: str) -> None:
        """Set `spec.autoscaling.mode`."""
        self.patch({"autoscaling": {"mode": mode}})

    def patch(self, spec: dict[str, Any]) -> None:
        """Change the spec."""
        text = json.dumps({"spec": spec})
        self.platform.kubectl("patch", "inferenceservice", self.name, "-n", self.namespace, "--type=merge", "-p", text)

    def look(self) -> Look:
        """Status, Deployments and pods as one answer of the API server has them."""
        kinds = "inferenceservices.serving.steelyard.dev,deployments.apps,pods"
        items = json.loads(self.platform.kubectl("get", kinds, "-n", self.namespace, "-o", "json"))["items"]
        mine = [item for item in items if item["metadata"].get("labels", {}).get(SERVICE) == self.name]
        asked = {
            pool: int(item["spec"]["replicas"])
            for item in mine
            if item["kind"] == "Deployment" and (pool := item["metadata"]["labels"].get(POOL))
        }
        pods = {item["metadata"]["name"]: item for item in mine if item["kind"] == "Pod" and POOL in _labels(item)}
        [service] = [i for i in items if i["kind"] == "InferenceService" and i["metadata"]["name"] == self.name]
        assert sum(asked.values()) <= self.budget
        return Look(dict(service.get("status", {})), asked, pods)

    def until(self, what: str, holds: Callable[[Look], Any], seconds: float = 240) -> Look:
        """Look until it holds; what was seen last is in the error."""
        seen = self.look()

        def looked() -> bool:
            nonlocal seen
            seen = self.look()
            return bool(holds(seen))

        try:
            self.platform.wait_for(what, looked, seconds)
        except PlatformError as error:
            raise PlatformError(f"{error}; seen last: {seen.asked} {dict(seen.roles)} {seen.status}") from error
        return seen

    def events(self, reason: str) -> list[tuple[datetime, str]]:
        """The service's events of one reason, oldest first: when the operator meant it, and its note."""
        found = self.platform.items("events.v1.events.k8s.io", self.namespace)
        of_ours = [e for e in found if e["reason"] == reason and e["regarding"].get("name") == self.name]
        return sorted((datetime.fromisoformat(e["eventTime"]), str(e.get("note", ""))) for e in of_ours)


def ticks(platform: Platform) -> int:
    """How often the operators that are there now have decided; one that starts begins at 0.

    Each is asked from its own node: policies let in nobody else.
    """
    assert isinstance(platform.cluster, LocalCluster)
    count = 0
    for pod in platform.items("pods", SYSTEM_NAMESPACE, OPERATORS):
        address, node = pod["status"].get("podIP"), pod["spec"].get("nodeName")
        if address and node:
            page = platform.cluster.machine(node).run_in_network(
                sys.executable, "-c", _FETCH, f"http://{address}:8080/metrics"
            )
            count += sum(round(float(value)) for value in _TICKS.findall(page))
    return count


@contextmanager
def monitored(platform: Platform) -> Iterator[Launch]:
    """A Prometheus, and an operator that reads it; gives how clients are started on a node, and skips where there is none."""
    if not isinstance(platform.cluster, LocalCluster):
        pytest.skip("END-TO-END SKIPPED: the clients of this load stand on a node of the local cluster")
    monitoring.install(platform, Console(file=sys.__stderr__))
    monitoring.connect_operator(platform)
    try:
        yield platform.cluster.machine("node1").network_command
    finally:
        monitoring.disconnect_operator(platform)


def _labels(item: dict[str, Any]) -> dict[str, str]:
    return dict(item["metadata"].get("labels", {}))

"""The autoscaler live: a real Prometheus, simulated engines under an open-loop load, and every request accounted for.

One service, one load: a burst of 25 seconds and then a trickle. The tests follow each other like one day: mode Off,
Recommend, Auto under the burst, Prometheus gone and back, and the way down. Engines keep the time of a slow accelerator, so
that a small machine is not the bottleneck.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from rich.console import Console
from steelyard.api.labels import GATEWAY_PORT, POOL

from e2e import monitoring
from e2e.cluster.local.cluster import LocalCluster
from e2e.load import Bounds, Lengths, Outcome, Pattern, Running, Shape, Spec, Target, start_load, synthetic
from e2e.load.arrivals import Arrival
from e2e.load.running import Launch
from e2e.platform import Platform, PlatformError

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

NAME, NAMESPACE = "elastic", "autoscaler"
BUDGET = 5
MANIFESTS = f"""
apiVersion: serving.steelyard.dev/v1alpha1
kind: Accelerator
metadata: {{name: elastic}}
spec:  # a prompt of 600 tokens takes a third of a second
  vendor: test
  memoryBandwidth: 33.0e+9
  peak: {{bf16: 8.0e+12}}
---
apiVersion: serving.steelyard.dev/v1alpha1
kind: InferenceService
metadata: {{name: {NAME}}}
spec:
  model:
    uri: hf://example/half-a-billion
    contextLength: 4096
    shape: {{parameters: 500000000, layers: 24, hiddenSize: 896, attentionHeads: 14, kvHeads: 2, headDimension: 64}}
  engine: {{name: simulated}}
  accelerator: elastic
  objectives: {{timeToFirstToken: 1500ms, timePerOutputToken: 150ms}}
  prefill: {{replicas: {{min: 1, max: 8}}}}
  decode: {{replicas: {{min: 1, max: 2}}}}
  routing: {{replicas: 1, requestTimeout: 60s}}
  autoscaling: {{mode: "Off", budget: {{accelerators: {BUDGET}}}}}
"""
BURST_SECONDS, WHOLE_SECONDS = 25.0, 900.0
BURST_RATE, TRICKLE_RATE = 6.0, 0.5


@dataclass(frozen=True)
class Look:
    """What one look at the service saw."""

    status: dict[str, Any]
    asked: dict[str, int]  # replicas, by pool

    def condition(self, kind: str) -> tuple[str, str]:
        found = {c["type"]: (c["status"], c["reason"]) for c in self.status.get("conditions", ())}
        return found.get(kind, ("", ""))

    def told(self, action: str, applied: bool) -> bool:
        """Whether some decision of the history did that: a decision in status may be replaced before anybody looks."""
        history = self.status.get("history", ())
        return any(action in one["action"] and one["applied"] is applied for one in history)


@dataclass
class Stage:
    """The service and its load."""

    platform: Platform
    launch: Launch
    address: str
    load: Running | None = None

    def mode(self, mode: str) -> None:
        self.patch({"autoscaling": {"mode": mode}})

    def patch(self, spec: dict[str, Any]) -> None:
        text = json.dumps({"spec": spec})
        self.platform.kubectl("patch", "inferenceservice", NAME, "-n", NAMESPACE, "--type=merge", "-p", text)

    def look(self) -> Look:
        """The service's status and its Deployments' numbers, of one moment; the budget holds at every moment."""
        kinds = "inferenceservices.serving.steelyard.dev,deployments.apps"
        items = json.loads(self.platform.kubectl("get", kinds, "-n", NAMESPACE, "-o", "json"))["items"]
        of_kind = {item["kind"]: item for item in items}
        asked = {
            pool: int(item["spec"]["replicas"])
            for item in items
            if item["kind"] == "Deployment" and (pool := item["metadata"]["labels"].get(POOL))
        }
        assert sum(asked.values()) <= BUDGET
        return Look(dict(of_kind["InferenceService"].get("status", {})), asked)

    def until(self, what: str, holds: Callable[[Look], Any], seconds: float = 120) -> Look:
        """Look until it holds; what was seen last is in the error."""
        seen = self.look()

        def looked() -> bool:
            nonlocal seen
            seen = self.look()
            return bool(holds(seen))

        try:
            self.platform.wait_for(what, looked, seconds)
        except PlatformError as error:
            raise PlatformError(f"{error}; seen last: {seen}") from error
        return seen

    def start(self) -> None:
        lengths = Lengths(600, 20, 0.2)
        burst = synthetic(Shape(Pattern.POISSON, rate=BURST_RATE), lengths, BURST_SECONDS, seed=1)
        after = synthetic(Shape(Pattern.POISSON, rate=TRICKLE_RATE), lengths, WHOLE_SECONDS, seed=2)
        later = tuple(Arrival(a.at + BURST_SECONDS, a.prompt_tokens, a.output_tokens) for a in after)
        target = Target(f"http://{self.address}:{GATEWAY_PORT}", NAME)
        spec = Spec(target, (*burst, *later), Bounds(request=90, silence=60), title="autoscaler")
        self.load = start_load(spec, self.launch)


@pytest.fixture(scope="module")
def stage(platform: Platform) -> Iterator[Stage]:
    """The service, a Prometheus that scrapes it, and an operator that reads it."""
    cluster = platform.cluster
    if not isinstance(cluster, LocalCluster):
        pytest.skip("END-TO-END SKIPPED: the clients of this load stand on a node of the local cluster")
    monitoring.install(platform, Console(file=sys.__stderr__))
    monitoring.connect_operator(platform)
    platform.apply(MANIFESTS, NAMESPACE)
    platform.wait_available(NAME, NAMESPACE)
    address = platform.get("service", NAME, NAMESPACE)["spec"]["clusterIP"]
    found = Stage(platform, cluster.machine("node1").network_command, address)
    try:
        yield found
    finally:
        if found.load is not None:
            found.load.stop()
        platform.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
        platform.kubectl("delete", "accelerator", "elastic", "--ignore-not-found")
        monitoring.disconnect_operator(platform)


def test_mode_off_measures_and_leaves_kubectl_scale_alone(stage: Stage) -> None:
    stage.platform.kubectl("scale", f"deployment/{NAME}-prefill", "-n", NAMESPACE, "--replicas=2")
    seen = stage.until("a tick that has measured the service", lambda look: look.condition("MetricsFresh")[0] == "True")
    assert seen.asked == {"prefill": 2, "decode": 1}
    assert "decision" not in seen.status
    stage.platform.kubectl("scale", f"deployment/{NAME}-prefill", "-n", NAMESPACE, "--replicas=1")


def test_recommend_says_what_it_would_do_and_changes_nothing(stage: Stage) -> None:
    stage.mode("Recommend")
    stage.start()
    seen = stage.until("a recommendation of more prefill", lambda look: look.told("prefill 1→", applied=False))
    assert seen.asked == {"prefill": 1, "decode": 1}
    assert not any(decision["applied"] for decision in seen.status["history"])


def test_a_burst_raises_the_replicas_within_the_budget(stage: Stage) -> None:
    stage.mode("Auto")
    seen = stage.until("a decision on more prefill", lambda look: look.told("prefill 1→", applied=True))
    assert seen.status["decision"]["because"]
    stage.until("more prefill replicas that are ready", lambda look: look.status["prefill"]["ready"] > 1)


def test_without_prometheus_it_holds_and_says_so(stage: Stage) -> None:
    before = stage.look().asked
    monitoring.stop(stage.platform)
    try:
        lost = ("False", "PrometheusUnreachable")
        seen = stage.until("MetricsFresh=False", lambda look: look.condition("MetricsFresh") == lost)
        assert seen.asked["prefill"] >= before["prefill"]
        held = stage.until("the decision to hold", lambda look: look.status["decision"]["limitedBy"] == "MetricsStale")
        assert held.asked == seen.asked
    finally:
        monitoring.restart(stage.platform)
    stage.until("fresh metrics", lambda look: look.condition("MetricsFresh")[0] == "True")


def test_a_lower_maximum_takes_replicas_away_at_once_and_no_request_is_lost(stage: Stage) -> None:
    """By the load alone they go four minutes after the burst (operator/tests/run/test_autoscaler_ticks.py)."""
    stage.patch({"prefill": {"replicas": {"max": 1}}})
    stage.until("the way back to one replica each", lambda look: look.asked == {"prefill": 1, "decode": 1})
    stage.until("the last one to have left", lambda look: look.status["prefill"]["draining"] == 0)
    assert stage.load is not None
    stage.load.stop()
    result = stage.load.result(seconds=100)
    assert not result.broken, result.explain()
    assert result.count(Outcome.COMPLETED) > BURST_RATE * BURST_SECONDS / 2

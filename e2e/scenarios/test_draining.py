"""Draining under load: pods leave in every way there is, and no request is lost, answered twice or left waiting.

One service of two prefill and two decode pods and two gateways on two nodes, one open-loop load of streams of some four
seconds; the disturbances come one after the other and each leaves the service as it found it. The engines keep the time
of a slow accelerator, so a small machine is not the bottleneck.
"""

from __future__ import annotations

import json
import re
import sys
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from rich.console import Console
from steelyard.api.labels import (
    COMPONENT,
    DECODE,
    ENGINE_PORT,
    GATEWAY_METRICS_PORT,
    GATEWAY_PORT,
    POOL,
    PREFILL,
    ROLE,
    SERVICE,
)

from e2e import departures
from e2e.cluster import ClusterError, create
from e2e.cluster.local.cluster import LocalCluster
from e2e.departures import Departure, Departures
from e2e.images.build import build_archives
from e2e.load import (
    Arrival,
    Bounds,
    Kind,
    Lengths,
    Outcome,
    Pattern,
    Running,
    Shape,
    Spec,
    Target,
    start_load,
    summarise,
    synthetic,
)
from e2e.load.running import Launch
from e2e.platform import Platform

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

NAME, NAMESPACE, NODES = "stream", "draining", ("node1", "node2")
GATEWAY = "gateway"
SELECTOR = f"{SERVICE}={NAME}"
MANIFESTS = """
apiVersion: serving.steelyard.dev/v1alpha1
kind: Accelerator
metadata: {name: slow}
spec:  # a step takes 40 ms for the weights of the model below
  vendor: test
  memoryBandwidth: 33.0e+9
  peak: {bf16: 10.0e+12}
---
apiVersion: serving.steelyard.dev/v1alpha1
kind: InferenceService
metadata: {name: stream}
spec:
  model:
    uri: hf://example/half-a-billion
    contextLength: 4096
    shape: {parameters: 500000000, layers: 24, hiddenSize: 896, attentionHeads: 14, kvHeads: 2, headDimension: 64}
  engine: {name: simulated}
  accelerator: slow
  prefill: {replicas: {min: 2, max: 2}}
  decode: {replicas: {min: 2, max: 2}}
  routing: {replicas: 2, requestTimeout: 20s}
"""
LOAD_SECONDS = 900  # more than all rows need: the load is stopped, it does not end
BROKEN = (Outcome.FAILED, Outcome.REFUSED, Outcome.TIMED_OUT, Outcome.HUNG)
Leavers = Counter[str]  # pods by pool, gateways as `gateway`


@dataclass(frozen=True)
class Stage:
    """The service under load."""

    platform: Platform
    spec: Spec
    launch: Launch
    load: Running
    departures: Departures

    def patch(self, spec: dict[str, Any]) -> None:
        text = json.dumps({"spec": spec})
        self.platform.kubectl("patch", "inferenceservice", NAME, "-n", NAMESPACE, "--type=merge", "-p", text)

    def pods(self, pool: str) -> list[str]:
        """The names of a pool's pods that are not leaving."""
        chosen = f"{SELECTOR},{COMPONENT}={GATEWAY}" if pool == GATEWAY else f"{SELECTOR},{POOL}={pool}"
        found = self.platform.items("pod", NAMESPACE, chosen)
        return [pod["metadata"]["name"] for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def delete(self, *pods: str) -> None:
        self.platform.kubectl("delete", "pod", *pods, "-n", NAMESPACE, "--wait=false")

    def evict(self, pod: str) -> None:
        """Ask the API server's eviction, as a node's drain does; raises ClusterError when the budget forbids it."""
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": NAMESPACE}}
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/eviction"
        self.platform.kubectl("create", "--raw", path, "-f", "-", text=json.dumps(body))

    def play(self, pod: str, role: str) -> None:
        """Relabel an engine's role, and wait until it works in it."""
        work = {
            PREFILL: 'vllm:prompt_tokens_by_source_total{.*source="local_compute"',
            DECODE: "vllm:generation_tokens_total",
        }
        with self.platform.forward(f"pod/{pod}", ENGINE_PORT, NAMESPACE) as url:
            self.platform.kubectl("label", "pod", pod, "-n", NAMESPACE, "--overwrite", f"{ROLE}={role}")
            before = _metric(url, work[role])
            # A decode pod computes one token of a prompt, a prefill pod one of an answer: this many are many requests' work.
            self.platform.wait_for(f"{pod} to {role}", lambda: _metric(url, work[role]) > before + 600, 40)

    def settle(self) -> None:
        """Wait until the service is whole again and nobody is leaving."""
        self.platform.wait_available(NAME, NAMESPACE, 90)
        self.platform.wait_for("every Deployment to be whole and nobody to leave", self._whole, 90)

    def _whole(self) -> bool:
        deployments = self.platform.items("deployment", NAMESPACE, SELECTOR)
        return all(map(_rolled_out, deployments)) and not self.departures.leaving()

    def failed_requests(self) -> float:
        """How many requests failed, as the present gateways count."""
        total = 0.0
        for pod in self.pods(GATEWAY):
            with self.platform.forward(f"pod/{pod}", GATEWAY_METRICS_PORT, NAMESPACE) as url:
                total += _metric(url, 'steelyard_gateway_requests_total{.*outcome="failed"')
        return total

    def broken(self) -> int:
        outcomes = self.load.progress().outcomes
        return sum(outcomes[one] for one in BROKEN)

    def completed(self) -> int:
        return self.load.progress().outcomes[Outcome.COMPLETED]


def _metric(url: str, pattern: str) -> float:
    """The sum of a metric's samples that match."""
    text = urllib.request.urlopen(f"{url}/metrics", timeout=5).read().decode()
    return sum(float(value) for value in re.findall(rf"^{pattern}.* (\S+)$", text, re.MULTILINE))


def _rolled_out(deployment: dict[str, Any]) -> bool:
    status, wanted = deployment["status"], deployment["spec"]["replicas"]
    counts = [status.get(key, 0) for key in ("replicas", "updatedReplicas", "readyReplicas")]
    return status.get("observedGeneration") == deployment["metadata"]["generation"] and counts == [wanted] * 3


def _pool(one: Departure) -> str:
    return one.labels.get(POOL, GATEWAY)


@pytest.fixture(scope="module")
def stage(platform: Platform) -> Iterator[Stage]:
    """The service on two nodes with its load, which goes on over all disturbances."""
    cluster = platform.cluster
    if not isinstance(cluster, LocalCluster):
        pytest.skip("END-TO-END SKIPPED: the clients of this load stand on a node of the local cluster")
    archives = list(build_archives(say=lambda text: None).values())
    create(cluster.name, nodes=len(NODES), archives=archives, console=Console(file=sys.__stderr__))
    platform.apply(MANIFESTS, NAMESPACE)
    platform.wait_available(NAME, NAMESPACE)
    platform.wait_for("every pod to be ready", lambda: _settled(platform))
    address = platform.get("service", NAME, NAMESPACE)["spec"]["clusterIP"]
    schedule = synthetic(Shape(Pattern.POISSON, rate=4), Lengths(200, 100, 0.3), LOAD_SECONDS, seed=1)
    target = Target(f"http://{address}:{GATEWAY_PORT}", NAME)
    spec = Spec(target, schedule, Bounds(request=25, silence=12), title="draining")
    launch = cluster.machine(NODES[0]).network_command
    with departures.watch(platform, NAMESPACE, SELECTOR) as leaving, start_load(spec, launch) as load:
        found = Stage(platform, spec, launch, load, leaving)
        platform.wait_for("streams under way", lambda: found.completed() >= 8, 30)
        yield found
    platform.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
    platform.kubectl("delete", "accelerator", "slow")


def _settled(platform: Platform) -> bool:
    deployments = platform.items("deployment", NAMESPACE, SELECTOR)
    return len(deployments) == 3 and all(map(_rolled_out, deployments))


def scale_down_and_up(stage: Stage) -> Leavers:
    for number in (1, 2):
        bounds = {"replicas": {"min": number, "max": number}}
        stage.patch({PREFILL: bounds, DECODE: bounds})
        stage.settle()
    return Counter({PREFILL: 1, DECODE: 1})


def roll_everything(stage: Stage) -> Leavers:
    stage.patch({"routing": {"requestTimeout": "21s"}})
    return Counter({PREFILL: 2, DECODE: 2, GATEWAY: 2})


def roll_to_another_kv_group(stage: Stage) -> Leavers:
    stage.patch({"model": {"contextLength": 2048}})
    return Counter({PREFILL: 2, DECODE: 2})


def change_roles_and_back(stage: Stage) -> Leavers:
    for pool, other in ((DECODE, PREFILL), (PREFILL, DECODE)):
        pod = stage.pods(pool)[0]
        stage.play(pod, other)
        stage.play(pod, pool)
    return Counter()


def delete_pods(stage: Stage) -> Leavers:
    stage.delete(stage.pods(PREFILL)[0], stage.pods(DECODE)[0])
    return Counter({PREFILL: 1, DECODE: 1})


def evict_pods(stage: Stage) -> Leavers:
    for pool in (PREFILL, DECODE):
        first, second = stage.pods(pool)
        stage.evict(first)
        with pytest.raises(ClusterError, match="disruption budget"):
            stage.evict(second)
    return Counter({PREFILL: 1, DECODE: 1})


def drain_a_node(stage: Stage) -> Leavers:
    node = NODES[1]
    on_it = [pod for pod in stage.platform.items("pod", NAMESPACE, SELECTOR) if pod["spec"]["nodeName"] == node]
    assert on_it, f"no pod of the service is on {node}"
    try:
        chosen = ("--delete-emptydir-data", f"--pod-selector={SELECTOR}", "--timeout=120s")
        stage.platform.kubectl("drain", node, *chosen)
    finally:
        stage.platform.kubectl("uncordon", node)
    return Counter(pod["metadata"]["labels"].get(POOL, GATEWAY) for pod in on_it)


def delete_a_gateway(stage: Stage) -> Leavers:
    stage.delete(stage.pods(GATEWAY)[0])
    return Counter({GATEWAY: 1})


@dataclass(frozen=True)
class Row:
    """A disturbance, which says who leaves for it, and why it has to go without loss."""

    given: str
    disturb: Callable[[Stage], Leavers]
    because: str


ROWS = (
    Row("scale down and up", scale_down_and_up, "a decision of the operator's may cost nobody an answer"),
    Row("role changes", change_roles_and_back, "a pod that changes its role finishes what it runs; no pod leaves"),
    Row("everything rolled", roll_everything, "an edit or an upgrade is an ordinary working day"),
    Row("pods deleted", delete_pods, "people and controllers delete pods at any time"),
    Row("pods evicted", evict_pods, "the budget lets one of a pool go at a time"),
    Row("node drained", drain_a_node, "nodes are repaired and scaled away under running services"),
    Row("gateway deleted", delete_a_gateway, "its streams pass through it, so it leaves after their end"),
)


KV_GROUP_CHANGES = Row(
    "another kv-group", roll_to_another_kv_group, "old and new engines cannot exchange KV while both serve"
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.given.replace(" ", "-"))
def test_pods_leave_and_nobody_notices(stage: Stage, row: Row) -> None:
    _undergo(stage, row)


def _undergo(stage: Stage, row: Row) -> None:
    """Disturb, and check who left and how, and that none of the load's requests broke."""
    stage.load.mark(row.given)
    known, broken = len(stage.departures.all()), stage.broken()

    def left() -> tuple[Departure, ...]:
        return stage.departures.all()[known:]

    expected = row.disturb(stage)
    stage.platform.wait_for(f"{expected} to be told to go", lambda: len(left()) >= expected.total(), 90)
    stage.settle()
    assert Counter(map(_pool, left())) == expected
    assert [one for one in left() if not one.orderly] == [], "drained within its grace, status 0"
    done = stage.completed()
    stage.platform.wait_for("answers after it", lambda: stage.completed() >= done + 4, 30)
    assert stage.broken() == broken, f"requests broke: {row.because}"


def test_a_stream_that_outlasts_the_bound_ends_with_an_error_and_is_counted(stage: Stage) -> None:
    """All engines leave while two streams run that would take a minute: the request's own time ends them, not a kill."""
    failed = stage.failed_requests()
    spec = replace(stage.spec, schedule=(Arrival(0, 50, 1500), Arrival(0.1, 50, 1500)))
    with start_load(spec, stage.launch) as long:
        stage.platform.wait_for("the long streams", lambda: long.progress().under_way == 2, 10)
        _undergo(stage, KV_GROUP_CHANGES)
        result = long.result(seconds=30)
    assert [one.kind for one in result.records] == [Kind.ERROR_EVENT] * 2, result.explain()
    assert all("took longer than" in (one.detail or "") for one in result.records), result.explain()
    assert stage.failed_requests() == failed + 2


def test_in_the_end_every_request_was_answered_once(stage: Stage) -> None:
    stage.load.stop()
    result = stage.load.result(seconds=60)
    moments = [f"{mark.at:.1f} s: {mark.text}" for mark in result.marks]
    assert not result.broken, f"{result.explain()}\n{moments}"
    assert summarise(result).duplicated == 0
    sent = [one for one in result.records if one.sent is not None]
    assert len(sent) == result.count(Outcome.COMPLETED)

"""Parts of the cluster fail while a service is under load: a node's kubelet, the API server, the operator during an upgrade.

One service on two nodes under one open-loop load; every row says what becomes of the requests (nothing: none may fail), of the
status and of the pods, which are the same in the end as they were in the beginning.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from rich.console import Console
from steelyard.api.labels import COMPONENT, DECODE, PREFILL, SERVICE

from e2e.cluster import create
from e2e.cluster.local.cluster import LocalCluster
from e2e.images.build import build_archives
from e2e.load import Lengths, Outcome, Pattern, Shape, summarise, synthetic
from e2e.platform import CHARTS, SYSTEM_NAMESPACE, Platform, condition
from e2e.stage import GATEWAY, Stage, staged

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

NAME, NAMESPACE, OTHER_NODE = "steady", "faults-cluster", "node2"
MANIFESTS = """
apiVersion: serving.steelyard.dev/v1alpha1
kind: Accelerator
metadata: {name: leisurely}
spec:  # a step takes 40 ms for the weights of the model below
  vendor: test
  memoryBandwidth: 33.0e+9
  peak: {bf16: 10.0e+12}
---
apiVersion: serving.steelyard.dev/v1alpha1
kind: InferenceService
metadata: {name: steady}
spec:
  model:
    uri: hf://example/half-a-billion
    contextLength: 4096
    shape: {parameters: 500000000, layers: 24, hiddenSize: 896, attentionHeads: 14, kvHeads: 2, headDimension: 64}
  engine: {name: simulated}
  accelerator: leisurely
  prefill: {replicas: {min: 2, max: 2}}
  decode: {replicas: {min: 2, max: 2}}
  autoscaling: {mode: "Off"}
  routing: {replicas: 2, requestTimeout: 60s}
"""
LOAD = synthetic(Shape(Pattern.POISSON, rate=2), Lengths(100, 60, 0.3), 900, seed=1)  # stopped, it does not end
OUTAGE_SECONDS = 30  # of the API server; nothing is asserted about times


@pytest.fixture(scope="module")
def stage(platform: Platform) -> Iterator[Stage]:
    cluster = platform.cluster
    if isinstance(cluster, LocalCluster):
        archives = list(build_archives(say=lambda text: None).values())
        create(cluster.name, nodes=2, archives=archives, console=Console(file=sys.__stderr__))
    with staged(platform, MANIFESTS, NAMESPACE, NAME, LOAD) as found:
        yield found
    platform.kubectl("delete", "accelerator", "leisurely")


def local(stage: Stage) -> LocalCluster:
    """The cluster whose programs these tests stop."""
    assert isinstance(stage.platform.cluster, LocalCluster)
    return stage.platform.cluster


def service(stage: Stage) -> dict[str, Any]:
    return stage.platform.get("inferenceservice", NAME, NAMESPACE)


def identities(stage: Stage) -> dict[str, int]:
    """Every pod of the service that is not leaving, by uid, with the restarts of its container."""
    pods = stage.platform.items("pod", NAMESPACE, f"{SERVICE}={NAME}")
    return {
        pod["metadata"]["uid"]: sum(one["restartCount"] for one in pod["status"].get("containerStatuses", []))
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"]
    }


@contextmanager
def nobody_notices(stage: Stage, row: str) -> Iterator[None]:
    """No request breaks, answers go on during and after it, and the pods stay the same ones without a restart."""
    stage.load.mark(row)
    broken, before = stage.broken(), identities(stage)
    assert len(before) == 6
    yield
    stage.goes_on()
    assert stage.broken() == broken, row
    assert identities(stage) == before, "pods were replaced or restarted"


def whole(stage: Stage) -> bool:
    """Whether the service is available with every replica ready."""
    found = service(stage)
    return condition(found, "Available") == "True" and found["status"]["ready"] == "4/4"


def test_a_nodes_kubelet_is_lost_and_comes_back(stage: Stage) -> None:
    """Its pods run on, and leave the routing as soon as the node counts as lost; nothing is rolled."""
    nodes = {part: [pod.node for pod in stage.pods(part)] for part in (PREFILL, DECODE, GATEWAY)}
    assert all(set(found) - {OTHER_NODE} for found in nodes.values()), f"every part has a pod elsewhere: {nodes}"
    lost = [*nodes[PREFILL], *nodes[DECODE]].count(OTHER_NODE)
    assert lost > 0
    with nobody_notices(stage, "kubelet lost"):
        local(stage).stop_kubelet(OTHER_NODE)
        try:
            left = f"{4 - lost}/4"
            stage.platform.wait_for("the status to tell", lambda: service(stage)["status"]["ready"] == left, 120)
            assert condition(service(stage), "Available") == "True"
            stage.goes_on()
        finally:
            local(stage).start_kubelet(OTHER_NODE)
        stage.platform.wait_for("the service to be whole", lambda: whole(stage), 120)


def test_the_api_server_is_gone_for_half_a_minute(stage: Stage) -> None:
    """Gateways keep their last view; the operator comes back by itself and does what was asked just before the end."""
    child = f"{NAME}-{DECODE}"
    with nobody_notices(stage, "API server gone"):
        before = stage.platform.get("service", child, NAMESPACE)["metadata"]["uid"]
        bounds = json.dumps({"spec": {DECODE: {"replicas": {"max": 3}}}})
        stage.platform.kubectl("delete", "service", child, "-n", NAMESPACE, "--wait=false")
        stage.platform.kubectl("patch", "inferenceservice", NAME, "-n", NAMESPACE, "--type=merge", "-p", bounds)
        local(stage).stop_apiserver()
        done = stage.completed()
        try:
            time.sleep(OUTAGE_SECONDS)
            assert stage.completed() > done, "answers went on without an API server"
        finally:
            local(stage).start_apiserver()

        def repaired() -> bool:
            found = stage.platform.get("service", child, NAMESPACE)
            return bool(found) and found["metadata"]["uid"] != before

        stage.platform.wait_for("the deleted child to be back", repaired, 120)
        stage.platform.wait_for("every node to be ready", local(stage).ready, 120)
        stage.platform.wait_available(NAME, NAMESPACE, 120)
        stage.platform.wait_for("the service to be whole", lambda: whole(stage), 120)


def test_an_upgrade_of_the_chart_rolls_no_serving_pod(stage: Stage) -> None:
    """New images of engine and gateway and another setting roll the operator; services keep the children they have."""
    values = json.loads(stage.platform.helm("get", "values", "steelyard", "-n", SYSTEM_NAMESPACE, "-o", "json"))
    newer = {name: {**values["images"][name], "tag": "next"} for name in ("gateway", "engine")}
    operators = f"app.kubernetes.io/name=steelyard,{COMPONENT}=operator"

    def uids() -> set[str]:
        return {pod["metadata"]["uid"] for pod in stage.platform.items("pod", SYSTEM_NAMESPACE, operators)}

    def upgrade(changed: dict[str, Any]) -> None:
        flags = [part for key, value in changed.items() for part in ("--set-json", f"{key}={json.dumps(value)}")]
        wait = ("-n", SYSTEM_NAMESPACE, "--wait", "--timeout", "3m")
        stage.platform.helm("upgrade", "steelyard", str(CHARTS / "steelyard"), *wait, *flags)

    with nobody_notices(stage, "chart upgraded"):
        before = uids()
        upgrade({**values, "images": {**values["images"], **newer}, "prometheusNamespace": "monitoring"})
        try:
            stage.platform.wait_for("the operator to be rolled", lambda: not before & uids(), 120)
            stage.platform.kubectl("annotate", "inferenceservice", NAME, "-n", NAMESPACE, "example.com/look=again")
            bounds = json.dumps({"spec": {DECODE: {"replicas": {"max": 2}}}})
            stage.platform.kubectl("patch", "inferenceservice", NAME, "-n", NAMESPACE, "--type=merge", "-p", bounds)
            stage.platform.wait_available(NAME, NAMESPACE, 120)  # for the generation of the patch
            stage.platform.wait_for("the service to be whole", lambda: whole(stage), 60)
        finally:
            upgrade(values)


def test_in_the_end_every_request_was_answered_once(stage: Stage) -> None:
    stage.load.stop()
    result = stage.load.result(seconds=120)
    assert not result.broken, f"{result.explain()}\n{[f'{mark.at:.1f} s: {mark.text}' for mark in result.marks]}"
    assert summarise(result).duplicated == 0
    assert result.count(Outcome.COMPLETED) == len([one for one in result.records if one.sent is not None])

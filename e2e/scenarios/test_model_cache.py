"""A model from a hub that breaks off every answer: brought once for two pods that start together, and again where it is damaged.

The hub is a pod of ours with the real protocol and the weights of the demo's image; the model is a real one that answers.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import yaml
from steelyard.api.labels import GATEWAY_PORT, POOL, SERVICE

from e2e.cache import REPOSITORY
from e2e.platform import EXAMPLES, SYSTEM_NAMESPACE, Platform

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

NAME, NAMESPACE, HUB_PORT = "cached", "model-cache", 8080
CUT = 40_000_000  # bytes after which the hub breaks off; the weights are three times as many
EXAMPLE: dict[str, Any] = yaml.safe_load((EXAMPLES / "smollm2-whole.yaml").read_text())
WEIGHTS: str = EXAMPLE["spec"]["model"]["uri"].removeprefix("oci://")


def hub(image: str) -> list[dict[str, Any]]:
    """The hub: its script, its pod and its name."""
    script = {"hub.py": (REPOSITORY / "e2e" / "hub.py").read_text()}
    weights, scripts = {"name": "weights", "mountPath": "/hub"}, {"name": "scripts", "mountPath": "/scripts"}
    command = ["python3", "/scripts/hub.py", "/hub", str(HUB_PORT), str(CUT)]
    pod = {
        "initContainers": [
            {
                "name": "copy",
                "image": WEIGHTS,
                "command": ["cp", "-r", "/weights/.", "/hub/org/model/"],
                "volumeMounts": [{**weights, "subPath": "model", "mountPath": "/hub/org/model"}],
            }
        ],
        "containers": [
            {
                "name": "hub",
                "image": image,
                "command": command,
                "volumeMounts": [{**weights, "subPath": "model", "mountPath": "/hub/org/model"}, scripts],
                "readinessProbe": {
                    "httpGet": {"path": "/api/models/org/model/revision/main", "port": HUB_PORT},
                    "timeoutSeconds": 10,
                },
            }
        ],
        "volumes": [{"name": "weights", "emptyDir": {}}, {"name": "scripts", "configMap": {"name": "hub"}}],
        "securityContext": {"fsGroup": 65532},
    }
    ports = [{"port": HUB_PORT}]
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "hub"}, "data": script},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "hub", "labels": {"app": "hub"}}, "spec": pod},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "hub"},
            "spec": {"selector": {"app": "hub"}, "ports": ports},
        },
    ]


def service() -> list[dict[str, Any]]:
    """The demo's model by two pods, from the hub by way of a claim."""
    spec = json.loads(json.dumps(EXAMPLE["spec"]))
    spec["model"] |= {
        "uri": "hf://org/model",
        "cache": {"kind": "claim", "claim": "models", "files": ["*.gguf"]},
        "credentials": {"secretName": "hub"},
    }
    spec["engine"]["prepull"] = True
    spec["aggregated"]["replicas"] = {"min": 2, "max": 2}
    address = {"endpoint": f"http://hub.{NAMESPACE}.svc:{HUB_PORT}"}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return [
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hub"}, "stringData": address},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "models"}, "spec": claim},
        {**EXAMPLE, "metadata": {"name": NAME}, "spec": spec},
    ]


@pytest.fixture(scope="module")
def cached(platform: Platform) -> Iterator[Platform]:
    settings = yaml.safe_load(
        platform.items("configmap", SYSTEM_NAMESPACE, "app.kubernetes.io/name=steelyard")[0]["data"]["operator.yaml"]
    )
    others = [node for node in platform.cluster.nodes if node != "node1"]
    for node in others:  # a claim of this cluster is a folder of one node
        platform.kubectl("cordon", node)
    try:
        items = [*hub(settings["images"]["engine"]), *service()]
        platform.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), NAMESPACE)
        platform.wait_available(NAME, NAMESPACE)
        platform.wait_for("both replicas", lambda: len(ready(platform)) == 2, 180)
        yield platform
    finally:
        platform.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
        for node in others:
            platform.kubectl("uncordon", node)


def ready(platform: Platform) -> list[str]:
    """The engines that are ready and stay."""
    pods = platform.items("pod", NAMESPACE, f"{SERVICE}={NAME},{POOL}")
    return [
        pod["metadata"]["name"]
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"]
        and any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))
    ]


def fetched(platform: Platform, pod: str) -> str:
    """What a pod's loader says at its end."""
    lines = platform.kubectl("logs", pod, "-c", "weights", "-n", NAMESPACE).splitlines()
    return str(json.loads(lines[-1])["message"]).rpartition(", ")[2]


def answers(platform: Platform) -> None:
    """The model says something."""
    with platform.forward(f"svc/{NAME}", GATEWAY_PORT, NAMESPACE) as url:
        body = {"model": "smollm2", "prompt": "The capital of France is", "max_tokens": 8, "temperature": 0}
        reply = httpx.post(f"{url}/v1/completions", json=body, timeout=120)
    assert reply.status_code == 200, reply.text
    assert "Paris" in reply.json()["choices"][0]["text"]


def test_two_pods_that_start_together_fill_it_once_over_a_hub_that_breaks_off(cached: Platform) -> None:
    said = Counter(fetched(cached, pod) for pod in ready(cached))
    assert said == {"1 fetched": 1, "0 fetched": 1}
    answers(cached)


def test_starts_are_told_by_phase(cached: Platform) -> None:
    def told() -> dict[str, float] | None:
        status = cached.get("inferenceservice", NAME, NAMESPACE)["status"]
        found: dict[str, float] | None = status["aggregated"].get("startSeconds")
        return found

    start = cached.wait_for("the figures", told, 30)
    assert set(start) == {"scheduled", "pulled", "weights", "ready", "total"}
    assert start["weights"] > 0
    assert start["total"] == pytest.approx(sum(start[name] for name in ("scheduled", "pulled", "weights", "ready")))


def test_images_are_on_every_node_that_may_run_an_engine(cached: Platform) -> None:
    """Tiny pods have fetched them, and nobody counts these for replicas or gateways."""

    def there() -> bool:
        [found] = cached.items("daemonset", NAMESPACE)
        status = found["status"]
        wanted = status.get("desiredNumberScheduled", 0)
        return bool(wanted and status.get("numberReady") == wanted)

    cached.wait_for("a pod on each node", there, 60)
    status = cached.get("inferenceservice", NAME, NAMESPACE)["status"]
    assert status["ready"] == "2/2"
    [found] = [one for one in status["conditions"] if one["type"] == "Progressing"]
    assert found["reason"] == "UpToDate"


def test_a_damaged_file_is_brought_again_by_the_next_pod(cached: Platform) -> None:
    """Damaged by somebody who can write to the claim; engines that run read on what they have in memory."""
    damage = "import glob; f=open(glob.glob('/models/*/*.gguf')[0],'r+b'); f.seek(1000); f.write(b'damage'); f.close()"
    [image] = {pod["spec"]["containers"][0]["image"] for pod in cached.items("pod", NAMESPACE, "app=hub")}
    writer = {
        "containers": [
            {
                "name": "damage",
                "image": image,
                "command": ["python3", "-c", damage],
                "volumeMounts": [{"name": "models", "mountPath": "/models"}],
            }
        ],
        "volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "models"}}],
        "restartPolicy": "Never",
    }
    cached.apply(
        json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "damage"}, "spec": writer}), NAMESPACE
    )
    cached.wait_for(
        "the damage", lambda: cached.get("pod", "damage", NAMESPACE)["status"].get("phase") == "Succeeded", 60
    )
    before = ready(cached)
    cached.kubectl("delete", "pod", before[0], "-n", NAMESPACE, "--wait=false")
    cached.wait_for("another pod", lambda: len(set(ready(cached)) - set(before)) == 1, 180)
    [new] = set(ready(cached)) - set(before)
    assert fetched(cached, new) == "1 fetched"
    answers(cached)

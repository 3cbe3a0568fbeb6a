"""Replicas over several nodes, on an API server with the real kind LeaderWorkerSet: what is written, kept and taken away.

No controller of that kind runs: what it would make of a LeaderWorkerSet is its own tests' business.
"""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from steelyard.api.labels import SCALER_MANAGER, SERVICE

from e2e.cache import REPOSITORY
from e2e.platform import Platform

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

DEFINITION = REPOSITORY / "e2e" / "data" / "leaderworkersets-0.8.0.yaml.gz"
KIND = "leaderworkersets.leaderworkerset.x-k8s.io"
NAMESPACE, NAME = "leader-worker-sets", "wide"
POOL = f"{NAME}-aggregated"
TURN = "example.org/turn"  # annotation of the service: a new value makes the operator look


def service(name: str = NAME, tensor: int = 16) -> str:
    spec = {
        "model": {"uri": "hf://example/large@v1", "contextLength": 4096},
        "engine": {"name": "vllm"},
        "accelerator": "h200",
        "topology": "Aggregated",
        "parallelism": {"tensor": tensor},
        "aggregated": {"replicas": {"min": 1, "max": 4, "initial": 2}},
        "routing": {"replicas": 1},
    }
    kind = {"apiVersion": "serving.steelyard.dev/v1alpha1", "kind": "InferenceService"}
    return json.dumps({**kind, "metadata": {"name": name}, "spec": spec})


@pytest.fixture(scope="module")
def refused(platform: Platform) -> Iterator[tuple[str, str]]:
    """What the operator says of such a service while the kind is not there, which is installed thereafter."""
    platform.kubectl("delete", "crd", KIND, "--ignore-not-found")
    platform.apply(service(), NAMESPACE)
    platform.wait_for("the refusal", lambda: condition(platform, NAME, "Accepted")[0] == "False")
    said = condition(platform, NAME, "Accepted")[1:]
    platform.kubectl("create", "-f", "-", text=gzip.decompress(DEFINITION.read_bytes()).decode())
    platform.wait_for("the kind", lambda: established(platform))
    yield said
    platform.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
    platform.kubectl("delete", "crd", KIND, "--ignore-not-found")


@pytest.fixture(scope="module")
def wide(platform: Platform, refused: tuple[str, str]) -> Platform:
    """A cluster with the kind, and the service's pool in it."""
    look(platform)
    platform.wait_for("the pool", lambda: group(platform))
    return platform


def established(platform: Platform) -> bool:
    """Whether the API server serves the kind."""
    found = json.loads(platform.kubectl("get", "crd", KIND, "-o", "json"))
    told = {one["type"]: one["status"] for one in found.get("status", {}).get("conditions") or []}  # null at first
    return told.get("Established") == "True"


def condition(platform: Platform, name: str, kind: str) -> tuple[str, str, str]:
    status = platform.get("inferenceservice", name, NAMESPACE).get("status", {})
    found = [one for one in status.get("conditions", []) if one["type"] == kind]
    return (found[0]["status"], found[0]["reason"], found[0]["message"]) if found else ("", "", "")


def group(platform: Platform, name: str = POOL) -> dict[str, Any]:
    return platform.get(KIND, name, NAMESPACE)


def look(platform: Platform, name: str = NAME) -> None:
    """Have the operator look now: no watch is kept on the kind."""
    platform.kubectl("annotate", "inferenceservice", name, "-n", NAMESPACE, "--overwrite", f"{TURN}={time.time_ns()}")


def test_without_the_kind_the_spec_is_refused_with_the_remedy(platform: Platform, refused: tuple[str, str]) -> None:
    reason, message = refused
    assert reason == "SpansNodes"
    assert "install LeaderWorkerSet" in message


def test_the_pool_is_two_pods_a_replica_and_the_scaler_owns_its_number(wide: Platform) -> None:
    wide.wait_for("its first number", lambda: group(wide)["spec"].get("replicas") == 2)
    body = group(wide)
    assert body["spec"]["leaderWorkerTemplate"]["size"] == 2
    named = wide.get("service", POOL, NAMESPACE)["spec"]
    assert named["publishNotReadyAddresses"] is True, "LWS keeps it, and followers look for their leader by it"
    shown = wide.kubectl("get", KIND, POOL, "-n", NAMESPACE, "-o", "json", "--show-managed-fields")
    fields = json.loads(shown)["metadata"]["managedFields"]
    owners = {entry["manager"] for entry in fields if "f:replicas" in json.dumps(entry)}
    assert owners == {SCALER_MANAGER}
    [owner] = body["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("InferenceService", NAME)
    assert condition(wide, NAME, "Accepted")[0] == "True"
    names = {deployment["metadata"]["name"] for deployment in wide.items("deployment", NAMESPACE)}
    assert names == {NAME}, "the gateway's alone"


def test_looks_at_what_is_in_place_write_nothing(wide: Platform) -> None:
    """Whatever the definition fills in is nobody's drift."""
    wide.wait_for("its first number", lambda: group(wide)["spec"].get("replicas") == 2)
    before = group(wide)["metadata"]["resourceVersion"]
    for _ in range(3):
        look(wide)
    # A look that does something: after it the others are over.
    wide.kubectl("delete", "service", POOL, "-n", NAMESPACE)
    wide.wait_for("a look to be over", lambda: wide.get("service", POOL, NAMESPACE))
    assert group(wide)["metadata"]["resourceVersion"] == before


def test_what_is_changed_by_hand_is_put_back_and_what_is_deleted_comes_back(wide: Platform) -> None:
    policy = {"spec": {"startupPolicy": "LeaderReady", "replicas": 9}}
    wide.kubectl("patch", KIND, POOL, "-n", NAMESPACE, "--type=merge", "-p", json.dumps(policy))
    look(wide)
    wide.wait_for("the repair", lambda: group(wide)["spec"]["startupPolicy"] == "LeaderCreated")
    wide.wait_for("the most replicas", lambda: group(wide)["spec"]["replicas"] == 4)
    wide.kubectl("delete", KIND, POOL, "-n", NAMESPACE)
    look(wide)
    wide.wait_for("the pool again", lambda: group(wide).get("spec", {}).get("replicas") == 2)


def test_its_own_status_counts(wide: Platform) -> None:
    wide.wait_for("its first number", lambda: group(wide)["spec"].get("replicas") == 2)
    told = {"status": {"replicas": 2, "readyReplicas": 1, "updatedReplicas": 2}}
    wide.kubectl("patch", KIND, POOL, "-n", NAMESPACE, "--subresource=status", "--type=merge", "-p", json.dumps(told))
    look(wide)
    wide.wait_for("the count", lambda: f"{POOL} 1/2" in condition(wide, NAME, "Progressing")[2])


def test_somebody_elses_is_left_alone_and_an_orphan_of_ours_is_taken_in(wide: Platform) -> None:
    body = group(wide)
    theirs = {"apiVersion": body["apiVersion"], "kind": body["kind"], "spec": body["spec"]}
    wide.apply(json.dumps({**theirs, "metadata": {"name": "other-aggregated"}}), NAMESPACE)
    wide.apply(service("other"), NAMESPACE)
    wide.wait_for("the refusal", lambda: condition(wide, "other", "Accepted")[1] == "NameTaken")
    assert "ownerReferences" not in group(wide, "other-aggregated")["metadata"]
    ours = {"app.kubernetes.io/managed-by": "steelyard", SERVICE: "other"}
    change = {"metadata": {"labels": ours}}
    wide.kubectl("patch", KIND, "other-aggregated", "-n", NAMESPACE, "--type=merge", "-p", json.dumps(change))
    look(wide, "other")
    wide.wait_for("an owner", lambda: group(wide, "other-aggregated")["metadata"].get("ownerReferences"))


def test_a_pool_that_needs_one_node_again_is_a_deployment_and_all_goes_with_the_service(wide: Platform) -> None:
    wide.apply(service(tensor=8), NAMESPACE)
    wide.wait_for("the pool to go", lambda: not group(wide))
    wide.wait_for("the Deployment", lambda: wide.get("deployment", POOL, NAMESPACE))
    wide.kubectl("delete", "inferenceservice", "other", "-n", NAMESPACE)
    wide.wait_for("the other's to go", lambda: not group(wide, "other-aggregated"), 120)

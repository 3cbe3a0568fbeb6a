"""Who reaches whom: names inside the cluster resolve, NetworkPolicies are enforced, and a service's own keep strangers out."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from e2e.cluster import ClusterError
from e2e.platform import EXAMPLES, SYSTEM_NAMESPACE, Platform

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

PORT = 8080
PROBE = """
import sys, urllib.request
print(urllib.request.urlopen(sys.argv[1], timeout=2).status)
"""
DIAL = """
import socket, sys
socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=2)
"""


def _pod(name: str, image: str, command: list[str], probe: dict[str, Any] | None = None) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": command,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        **({"readinessProbe": probe} if probe else {}),
    }
    security = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"terminationGracePeriodSeconds": 0, "securityContext": security, "containers": [container]},
    }


def _policy(allowed: dict[str, str] | None) -> dict[str, Any]:
    """A policy for the server: nobody may come in, or only pods with the labels `allowed`."""
    rules = [] if allowed is None else [{"from": [{"podSelector": {"matchLabels": allowed}}]}]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "server"},
        "spec": {"podSelector": {"matchLabels": {"app": "server"}}, "policyTypes": ["Ingress"], "ingress": rules},
    }


def _image(platform: Platform) -> str:
    """The operator's image, which every node has and which holds Python."""
    path = "jsonpath={.items[0].spec.template.spec.containers[0].image}"
    return platform.kubectl("get", "deployment", "-n", SYSTEM_NAMESPACE, "-o", path)


def _eventually(condition: Callable[[], bool], what: str, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def test_a_policy_closes_and_opens_a_service_that_is_called_by_name(platform: Platform, namespace: str) -> None:
    image = _image(platform)
    ready = {"httpGet": {"path": "/", "port": PORT}, "periodSeconds": 1}
    server = ["python3", "-m", "http.server", str(PORT), "--directory", "/tmp"]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "server"},
        "spec": {"selector": {"app": "server"}, "ports": [{"port": 80, "targetPort": PORT}]},
    }
    for made in (_pod("server", image, server, ready), _pod("client", image, ["sleep", "3600"]), service):
        platform.apply(json.dumps(made), namespace)
    platform.kubectl("wait", "-n", namespace, "--for=condition=Ready", "pod/server", "pod/client", "--timeout=120s")

    def reached() -> bool:
        url = f"http://server.{namespace}.svc.cluster.local/"
        try:
            answer = platform.kubectl("exec", "-n", namespace, "client", "--", "python3", "-c", PROBE, url)
        except ClusterError:
            return False
        return answer.strip() == "200"

    _eventually(reached, "without a policy the client must reach the server")
    platform.apply(json.dumps(_policy(None)), namespace)
    _eventually(lambda: not reached(), "a policy without rules must keep the client out")
    platform.apply(json.dumps(_policy({"friend": "yes"})), namespace)
    assert not reached(), "a policy for others must still keep the client out"
    platform.kubectl("label", "pod", "client", "-n", namespace, "friend=yes")
    _eventually(reached, "the label must let the client in")
    restarts = "jsonpath={.items[*].status.containerStatuses[*].restartCount}"
    assert platform.kubectl("get", "pods", "-n", namespace, "-o", restarts) == "0 0", "probes must pass under a policy"


def test_a_stranger_reaches_the_gateways_api_and_nothing_else(platform: Platform, namespace: str) -> None:
    """The service's own policies; its namespace enforces the profile "restricted", which every pod of it must pass."""
    platform.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    platform.apply(EXAMPLES / "simulated.yaml", namespace)
    platform.apply(json.dumps(_pod("client", _image(platform), ["sleep", "3600"])), namespace)
    platform.wait_available("rehearsal", namespace)
    platform.kubectl("wait", "-n", namespace, "--for=condition=Ready", "pod/client", "--timeout=120s")
    chosen = "serving.steelyard.dev/service=rehearsal,app.kubernetes.io/component="
    address = {
        part: platform.items("pod", namespace, chosen + part)[0]["status"]["podIP"] for part in ("gateway", "engine")
    }

    def opened(part: str, port: int) -> bool:
        try:
            platform.kubectl("exec", "-n", namespace, "client", "--", "python3", "-c", DIAL, address[part], str(port))
        except ClusterError:
            return False
        return True

    def label(*labels: str) -> None:
        platform.kubectl("label", "pod", "client", "-n", namespace, "--overwrite", *labels)

    _eventually(lambda: opened("gateway", 8000), "clients of the cluster must reach the gateway's API")
    closed = (("gateway", 9090), ("engine", 8000), ("engine", 5600))
    for part, port in closed:
        _eventually(lambda part=part, port=port: not opened(part, port), f"{part}:{port} must be closed to strangers")  # type: ignore[misc]
    label("app.kubernetes.io/component=engine", "serving.steelyard.dev/service=other")
    time.sleep(1)
    assert not opened("engine", 5600), "KV state is not for engines of another service"
    label("serving.steelyard.dev/service=rehearsal")
    _eventually(lambda: opened("engine", 5600), "engines of one service must reach each other's KV state")
    assert not opened("engine", 8000), "engines have no business at each other's API"
    label("app.kubernetes.io/component=gateway")
    _eventually(lambda: opened("engine", 8000), "the gateway must reach its engines")
    _eventually(lambda: not opened("engine", 5600), "a gateway has no business with KV state")

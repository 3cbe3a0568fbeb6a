"""What other scenarios rely on without saying so: names inside the cluster resolve, and NetworkPolicies are enforced."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from e2e.cluster import ClusterError
from e2e.platform import SYSTEM_NAMESPACE, Platform

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

PORT = 8080
PROBE = """
import sys, urllib.request
print(urllib.request.urlopen(sys.argv[1], timeout=2).status)
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


def _eventually(condition: Callable[[], bool], what: str, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def test_a_policy_closes_and_opens_a_service_that_is_called_by_name(platform: Platform, namespace: str) -> None:
    image = platform.kubectl(
        "get", "deployment", "-n", SYSTEM_NAMESPACE, "-o", "jsonpath={.items[0].spec.template.spec.containers[0].image}"
    )
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

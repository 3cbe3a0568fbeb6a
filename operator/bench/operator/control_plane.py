"""An API server of the benchmark's own, with Steelyard's kinds and the operator's rights, and nothing else running."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml
from rich.console import Console
from steelyard.observe.client import Api, connect

from bench.operator.usage import cpu_seconds
from e2e import tools
from e2e.cache import REPOSITORY
from e2e.cluster import remove
from e2e.cluster.kubeconfig import write
from e2e.cluster.local import machine
from e2e.cluster.local.cluster import LocalCluster
from e2e.cluster.local.processes import of_cluster
from e2e.cluster.local.up import bring_up
from e2e.errors import ToolError

NAME = "bench"
SYSTEM = "steelyard-system"
ACCOUNT = "steelyard-operator"
LEFT_OUT = ("Deployment", "NetworkPolicy", "PodDisruptionBudget", "Service")  # of the chart: what only pods need
FLOW = "bench-operator"
_DISPATCHED = re.compile(
    rf'^apiserver_flowcontrol_dispatched_requests_total{{[^}}]*flow_schema="{FLOW}"[^}}]*}} (\S+)', re.M
)


@dataclass(frozen=True)
class ControlPlane:
    """The running API server; `api` acts as its administrator, `operator` is the kubeconfig of the operator's account."""

    cluster: LocalCluster
    api: Api
    operator: Path

    server_pid: int

    def calls(self) -> float:
        """The operator's requests by the API server's own count; asking costs the API server a tenth of a CPU-second."""
        return sum(map(float, _DISPATCHED.findall(self.cluster.kubectl("get", "--raw", "/metrics"))))

    def server_cpu_seconds(self) -> float:
        """What the API server has worked, for whomever."""
        return cpu_seconds(self.server_pid)


@contextmanager
def control_plane(console: Console) -> Iterator[ControlPlane]:
    """Make it, and take it down in the end. Raises ToolError where no local cluster can run (it needs root)."""
    cluster = bring_up(NAME, console, nodes=1, accelerators=0)
    try:
        controllers = cluster.machine("cp")
        for program in ("controller-manager", "scheduler", "volumes"):
            controllers.stop(program, "KILL")
        machine.discard(cluster.layout, "node1")
        _install(cluster)
        server = next(found.pid for found in of_cluster(NAME) if found.command == "kube-apiserver")
        yield ControlPlane(cluster, connect(str(cluster.kubeconfig)), _account(cluster), server)
    finally:
        remove(NAME)


def _install(cluster: LocalCluster) -> None:
    """The CRDs, the chart's rights and hardware, and a flow of its own for the account, so that its requests are counted."""
    cluster.kubectl("create", "namespace", SYSTEM)
    cluster.kubectl("apply", "--server-side", "-f", REPOSITORY / "crds")
    cluster.kubectl("wait", "--for=condition=Established", "crd", "--all")
    command = [str(tools.helm()), "template", "steelyard", str(REPOSITORY / "charts" / "steelyard"), "-n", SYSTEM]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ToolError(f"the chart cannot be rendered: {done.stderr.strip()}")
    wanted = [body for body in yaml.safe_load_all(done.stdout) if body and body["kind"] not in LEFT_OUT]
    cluster.kubectl("apply", "--server-side", "-n", SYSTEM, "-f", "-", input=yaml.safe_dump_all([*wanted, _flow()]))


def _flow() -> dict[str, object]:
    who = {"kind": "ServiceAccount", "serviceAccount": {"name": ACCOUNT, "namespace": SYSTEM}}
    rules = {
        "subjects": [who],
        "resourceRules": [
            {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
        ],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    }
    return {
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "FlowSchema",
        "metadata": {"name": FLOW},
        "spec": {
            "priorityLevelConfiguration": {"name": "workload-low"},  # where service accounts' requests go anyway
            "matchingPrecedence": 500,
            "rules": [rules],
        },
    }


def _account(cluster: LocalCluster) -> Path:
    """A kubeconfig by which a process here is the operator, with no more rights than in its pod."""
    token = cluster.kubectl("create", "token", ACCOUNT, "-n", SYSTEM, "--duration=12h").strip()
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"] = [{"name": entry["name"], "user": {"token": token}} for entry in config["users"]]
    return write(cluster.kubeconfig.with_name("operator.kubeconfig"), json.loads(json.dumps(config)))

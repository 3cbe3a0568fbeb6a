"""The `kind` backend: nodes as Docker containers. Unit-tested with a fake runner; not run by our tests."""

import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import yaml

from e2e.cluster.cluster import Cluster
from e2e.cluster.errors import ClusterError

Runner = Callable[[Sequence[str]], str]


def run(command: Sequence[str]) -> str:
    """Run `command` and return its output; raise `ClusterError` with its error text if it fails."""
    try:
        done = subprocess.run(list(command), capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise ClusterError(f"{command[0]} is not on PATH; install it.") from None
    if done.returncode:
        raise ClusterError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def configuration(nodes: int) -> dict[str, Any]:
    """kind's settings for `nodes` nodes; the first is the control plane, on which kind lets pods run when it is alone.

    kind's own network (kindnet) stays: it enforces NetworkPolicies.
    """
    roles = ["control-plane"] + ["worker"] * (nodes - 1 if nodes > 1 else 0)
    return {"kind": "Cluster", "apiVersion": "kind.x-k8s.io/v1alpha4", "nodes": [{"role": role} for role in roles]}


def load(cluster: str, archives: Sequence[Path], runner: Runner = run) -> None:
    """Put the images of `archives` on every node of kind's cluster `cluster`."""
    for archive in archives:
        runner(["kind", "load", "image-archive", "--name", cluster, str(archive)])


def exists(cluster: str, runner: Runner = run) -> bool:
    """Whether kind has a cluster of this name."""
    return cluster in runner(["kind", "get", "clusters"]).split()


class KindCluster(Cluster):
    """A cluster made by kind under the same name."""

    backend: ClassVar[str] = "kind"

    def __init__(self, name: str, runner: Runner = run) -> None:
        super().__init__(name)
        self._run = runner

    @property
    def kubectl_program(self) -> Path:
        from e2e.cluster.context import host_kubectl

        return host_kubectl()

    def load(self, archives: Sequence[Path]) -> None:
        load(self.name, archives, self._run)

    def down(self) -> bool:
        found = exists(self.name, self._run)
        if found:
            self._run(["kind", "delete", "cluster", "--name", self.name])
        return self.forget() or found

    def node_command(self, node: str, command: Sequence[str]) -> list[str]:
        return ["docker", "exec", node, *command]

    def create(self, nodes: int) -> None:
        """Make the cluster unless it exists, and write its kubeconfig."""
        if not exists(self.name, self._run):
            with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
                yaml.safe_dump(configuration(nodes), file)
                file.flush()
                self.kubeconfig.parent.mkdir(parents=True, exist_ok=True)
                options = ["--config", file.name, "--kubeconfig", str(self.kubeconfig), "--wait", "180s"]
                self._run(["kind", "create", "cluster", "--name", self.name, *options])
        else:
            self._run(["kind", "export", "kubeconfig", "--name", self.name, "--kubeconfig", str(self.kubeconfig)])
        self.record()

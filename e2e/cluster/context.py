"""The `context` backend: a cluster that exists already and is reached by the current kubeconfig context."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import yaml

from e2e.cluster import kind, kubeconfig
from e2e.cluster.cluster import Cluster
from e2e.cluster.errors import ClusterError


def host_kubectl() -> Path:
    """The kubectl on PATH; raise `ClusterError` if there is none."""
    if found := shutil.which("kubectl"):
        return Path(found)
    raise ClusterError("kubectl is not on PATH: install it, or use --backend local, which brings its own.")


class ContextCluster(Cluster):
    """Somebody else's cluster: it is used, never made or removed."""

    backend: ClassVar[str] = "context"

    @property
    def kubectl_program(self) -> Path:
        return host_kubectl()

    def load(self, archives: Sequence[Path]) -> None:
        context = str(yaml.safe_load(self.kubeconfig.read_text())["current-context"])
        if not (context.startswith("kind-") and shutil.which("kind")):
            raise ClusterError(
                f"Images cannot be put on the nodes of context {context!r}: push them to a registry that its nodes read, "
                "and give the charts those names."
            )
        kind.load(context.removeprefix("kind-"), archives)

    def down(self) -> bool:
        return self.forget()

    def node_command(self, node: str, command: Sequence[str]) -> list[str]:
        raise ClusterError(f"The backend `context` gives no access to node {node!r}; use `kubectl debug node/{node}`.")


def use(name: str) -> ContextCluster:
    """Use the current context as the cluster `name`: its settings alone are copied, so later switches do not matter."""
    cluster = ContextCluster(name)
    done = subprocess.run(
        [str(host_kubectl()), "config", "view", "--minify", "--flatten"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ClusterError(f"The current kubeconfig context cannot be read: {done.stderr.strip()}")
    kubeconfig.write(cluster.kubeconfig, yaml.safe_load(done.stdout))
    cluster.record()
    return cluster

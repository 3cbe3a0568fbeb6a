"""What every cluster offers, whichever backend made it."""

import json
import shlex
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from e2e.cluster import paths
from e2e.cluster.errors import ClusterError


class Cluster(ABC):
    """A running cluster that is reached with `kubeconfig` from this host."""

    backend: ClassVar[str]

    def __init__(self, name: str) -> None:
        self.name = paths.check_name(name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    @property
    def kubeconfig(self) -> Path:
        """The file for kubectl, helm and the Python client."""
        return paths.output(self.name) / "kubeconfig"

    @property
    @abstractmethod
    def kubectl_program(self) -> Path:
        """The kubectl to use with this cluster."""

    @abstractmethod
    def load(self, archives: Sequence[Path]) -> None:
        """Give every node the images of `archives` (docker's format), under the names in them."""

    @abstractmethod
    def down(self) -> bool:
        """Remove the cluster with everything that it left on this machine, and return whether there was anything.

        A cluster of others is only forgotten.
        """

    @abstractmethod
    def node_command(self, node: str, command: Sequence[str]) -> list[str]:
        """The command that runs `command` on `node`, for people; raise `ClusterError` where that is not possible."""

    def kubectl(self, *args: str | Path, input: str | None = None) -> str:
        """Run kubectl with `args` (and `input` as its standard input) and return its output.

        Raises `ClusterError` with kubectl's own message when it fails.
        """
        done = subprocess.run(
            [str(self.kubectl_program), f"--kubeconfig={self.kubeconfig}", *map(str, args)],
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ClusterError(f"kubectl {shlex.join(map(str, args))}: {done.stderr.strip()}")
        return done.stdout

    @property
    def nodes(self) -> list[str]:
        """The names of the nodes, as the API server lists them."""
        return self.kubectl("get", "nodes", "-o", "jsonpath={.items[*].metadata.name}").split()

    def ready(self) -> bool:
        """Whether the API server answers and every node is Ready."""
        try:
            self.kubectl("get", "--raw", "/readyz", "--request-timeout=5s")  # fails at once where others try for long
            listing = json.loads(self.kubectl("get", "nodes", "-o", "json", "--request-timeout=10s"))
        except ClusterError:
            return False
        conditions = [
            c for node in listing["items"] for c in node["status"].get("conditions", []) if c["type"] == "Ready"
        ]
        return bool(listing["items"]) and all(c["status"] == "True" for c in conditions)

    def advertise(self, accelerators: int) -> None:
        """Let every node offer `accelerators` simulated accelerators, a resource that only counts."""
        amount = {RESOURCE: str(accelerators)}
        patch = json.dumps({"status": {"capacity": amount, "allocatable": amount}})
        for node in self.nodes:
            self.kubectl("patch", "node", node, "--subresource=status", "--type=merge", "--patch", patch)

    def record(self) -> None:
        """Write down in the output folder which backend made the cluster, for `attach`."""
        folder = paths.output(self.name)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cluster.json").write_text(json.dumps({"backend": self.backend}) + "\n")

    def forget(self) -> bool:
        """Remove kubeconfig and record from the output folder, and it too when nothing else is in it; return if they were."""
        folder = paths.output(self.name)
        known = recorded_backend(self.name) is not None
        for file in (self.kubeconfig, folder / "cluster.json"):
            file.unlink(missing_ok=True)
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
        return known


RESOURCE = "steelyard.dev/simulated-accelerator"


def recorded_backend(name: str) -> str | None:
    """The backend that `record` wrote down for the cluster `name`, or None."""
    try:
        return str(json.loads((paths.output(name) / "cluster.json").read_text())["backend"])
    except (OSError, ValueError, KeyError):
        return None

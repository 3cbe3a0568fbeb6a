"""Names, addresses and folders of one local cluster.

The addresses are the same in every cluster: each has its own network namespaces without an uplink, so they never meet.
Only what the host shares is keyed by the cluster's name: the state folder, the cgroups and the forwarder's port.
"""

from dataclasses import dataclass
from pathlib import Path

from e2e.cache import cache_root
from e2e.cluster import paths

CONTROL_PLANE = "cp"
CONTROL_PLANE_IP = "10.77.0.1"
POD_NETWORK = "10.88.0.0/16"
SERVICE_NETWORK = "10.96.0.0/16"
KUBERNETES_SERVICE_IP = "10.96.0.1"
DNS_SERVICE_IP = "10.96.0.10"
API_PORT = 6443
MAX_NODES = 200
"""Node n has the address 10.77.0.(10+n) and the pods 10.88.n.0/24."""


@dataclass(frozen=True)
class Node:
    """The addresses of node number `number`, counted from 1."""

    number: int

    @property
    def name(self) -> str:
        return f"node{self.number}"

    @property
    def ip(self) -> str:
        return f"10.77.0.{10 + self.number}"

    @property
    def pods(self) -> str:
        return f"10.88.{self.number}.0/24"


@dataclass(frozen=True)
class Layout:
    """The folders of the cluster `name` under `clusters`, the folder that holds one folder per cluster."""

    name: str
    clusters: Path

    @classmethod
    def of(cls, name: str) -> "Layout":
        return cls(paths.check_name(name), cache_root() / "clusters")

    @property
    def state(self) -> Path:
        return self.clusters / self.name

    @property
    def pki(self) -> Path:
        return self.state / "pki"

    @property
    def logs(self) -> Path:
        return self.state / "log"

    @property
    def volumes(self) -> Path:
        """Where the host-path provisioner's volumes really lie; every machine sees it at /tmp/hostpath_pv."""
        return self.state / "volumes"

    @property
    def cgroup(self) -> str:
        """The name of the cluster's folder in every cgroup hierarchy."""
        return f"steelyard-{self.name}"

    @property
    def endpoint(self) -> Path:
        """The file into which the forwarder writes its port on 127.0.0.1 and its pid."""
        return self.state / "forward.json"

    def machine(self, machine: str) -> Path:
        return self.state / machine

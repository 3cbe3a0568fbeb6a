"""The three services of the burst, and the way from its clients to them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from string import Template

from steelyard.api.labels import GATEWAY_PORT

from e2e.cluster.local.cluster import LocalCluster
from e2e.load import Objectives, Target
from e2e.load.running import Launch, here
from e2e.platform import Platform

NAMESPACE, MODEL = "burst", "burst"
OBJECTIVES = Objectives(ttft=1.5, tpot=0.25)
MOST, BUDGET = 8, 10  # replicas of a role; accelerators of a service
_MANIFEST = Template(Path(__file__).with_name("service.yaml").read_text())


@dataclass(frozen=True)
class Size:
    """Replicas of each role."""

    prefill: int
    decode: int

    def __str__(self) -> str:
        return f"{self.prefill}P{self.decode}D"


LEAST = Size(1, 1)


@dataclass(frozen=True)
class Way:
    """How clients reach the services: a command around theirs, and each service's address."""

    launch: Launch
    targets: dict[str, Target]


def manifest(name: str, size: Size, auto: bool = False) -> str:
    """One service and the accelerator it runs on."""
    return _MANIFEST.substitute(
        name=name,
        prefill=size.prefill,
        decode=size.decode,
        most=MOST,
        budget=BUDGET,
        mode="Auto" if auto else "Off",
        ttft=f"{OBJECTIVES.ttft}s",
        tpot=f"{OBJECTIVES.tpot}s",
    )


def serve(platform: Platform, sizes: dict[str, Size], auto: str) -> None:
    """Put the services on the cluster and wait until all their replicas are ready; `auto` names the one that scales itself."""
    for name, size in sizes.items():
        platform.apply(manifest(name, size, auto=name == auto), NAMESPACE)
    for name in sizes:
        platform.wait_available(name, NAMESPACE)


def remove(platform: Platform, wait: bool = True) -> None:
    """Take the services away; those of an earlier run are waited for, so that the figures are those of new ones.

    Not by their namespace: once it has told pods to go, its controller looks again after half of their longest grace.
    """
    how = (f"--wait={str(wait).lower()}", "--ignore-not-found")
    platform.make_namespace(NAMESPACE)
    platform.kubectl("delete", "inferenceservice", "--all", "-n", NAMESPACE, "--cascade=foreground", *how)
    platform.kubectl("delete", "accelerator", "rehearsal", *how)


@contextmanager
def reach(platform: Platform, names: list[str]) -> Iterator[Way]:
    """On a local cluster clients stand on a node; on others they go through the API server, which costs some milliseconds."""
    cluster = platform.cluster
    if isinstance(cluster, LocalCluster):
        addresses = {name: platform.get("service", name, NAMESPACE)["spec"]["clusterIP"] for name in names}
        targets = {name: Target(f"http://{address}:{GATEWAY_PORT}", MODEL) for name, address in addresses.items()}
        yield Way(cluster.machine("node1").network_command, targets)
        return
    with ExitStack() as stack:
        bases = {name: stack.enter_context(platform.forward(f"svc/{name}", GATEWAY_PORT, NAMESPACE)) for name in names}
        yield Way(here, {name: Target(base, MODEL) for name, base in bases.items()})

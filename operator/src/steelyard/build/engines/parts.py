"""What an engine's builder says about its container; the pod around it is the same for all engines."""

from dataclasses import dataclass, field
from typing import Any

from steelyard.api.labels import ENGINE_PORT, KV_PORT
from steelyard.api.quantities import Quantity

Body = dict[str, Any]

PORTS: tuple[Body, ...] = (
    {"name": "http", "containerPort": ENGINE_PORT, "protocol": "TCP"},
    {"name": "kv", "containerPort": KV_PORT, "protocol": "TCP"},
)
POD_IDENTITY: tuple[Body, ...] = (
    {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
)


@dataclass(frozen=True)
class Parts:
    """The engine's share of a pod, in Kubernetes' own forms."""

    image: str
    command: tuple[str, ...]
    args: tuple[str, ...]
    env: tuple[Body, ...] = ()
    ports: tuple[Body, ...] = ()
    volumes: tuple[Body, ...] = ()
    mounts: tuple[Body, ...] = ()
    init_containers: tuple[Body, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)  # files of the role's ConfigMap
    startup_seconds: int = 600  # after which a start counts as failed and the container is restarted
    drain_seconds: int = 60  # SIGTERM to exit at the latest
    live_path: str = "/live"  # answers while the engine's loop turns
    metrics_path: str = "/metrics"  # of the text that Prometheus reads
    drain_command: tuple[str, ...] = ()  # run before SIGTERM; empty: the engine drains on SIGTERM itself
    accelerators: int = 1  # of one pod
    nodes: int = 1  # pods of one replica, each on a node of its own
    follower_args: tuple[str, ...] = ()  # arguments of a replica's other pods, which answer no requests
    devices: dict[str, int] = field(default_factory=dict)  # further counted resources of one pod
    extra_memory: int = 0  # bytes to add to the memory that the user asks for
    shared_memory: Quantity | None = None  # size of /dev/shm where the user says none; None: the runtime's 64Mi
    capabilities: tuple[str, ...] = ()  # Linux capabilities that the container needs

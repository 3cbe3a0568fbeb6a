"""What an engine's builder says about its container; the pod around it is the same for all engines."""

from dataclasses import dataclass, field
from typing import Any

Body = dict[str, Any]


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

"""What the installation gives to every service: images and the namespaces that may reach its pods."""

from dataclasses import dataclass
from typing import Literal

PullPolicy = Literal["Always", "IfNotPresent", "Never"]


@dataclass(frozen=True)
class Site:
    """The operator's settings as far as children depend on them."""

    gateway_image: str
    engine_image: str
    image_pull_policy: PullPolicy = "IfNotPresent"
    image_pull_secrets: tuple[str, ...] = ()  # names of Secrets, which must exist in the services' namespaces
    prometheus_namespace: str | None = None  # may read metrics of engines and gateways
    operator_namespace: str | None = None  # may read the gateways' demand

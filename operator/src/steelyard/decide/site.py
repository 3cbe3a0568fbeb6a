"""What the installation gives to every service: images and the namespaces that may reach its pods."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from steelyard.catalog.engines import ENGINES

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
    node_cache: str | None = None  # folder of each node that keeps models; None: services may not use one
    quantize_image: str | None = (
        None  # steelyard-quantize; None: services may not have their weights quantized by a Job
    )
    engine_images: Mapping[str, str] = field(default_factory=dict)  # of engines that are not ours, by spec.engine.name

    def image_of(self, engine: str) -> str:
        """Name the image of an engine that is not ours: the installation's, else its project's own.

        Raises ValueError where there is neither; accept refuses a service that would need it.
        """
        image = self.engine_images.get(engine) or ENGINES[engine].image
        if not image:
            raise ValueError(f"engine {engine} has no image; accept refuses such a service")
        return image

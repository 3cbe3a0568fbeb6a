"""The operator's settings: one YAML file, checked as a whole at start, unknown keys refused."""

import os
import socket
from pathlib import Path
from typing import Annotated, Literal, Self

import yaml
from pydantic import Field, ValidationError, model_validator

from steelyard.api.engine import EngineName
from steelyard.api.record import Record
from steelyard.decide.site import Site


class SettingsError(Exception):
    """The settings file is missing or wrong; the message names the file, the field and the value."""


class Images(Record):
    """Images of the pods that the operator makes."""

    gateway: Annotated[str, Field(min_length=1)]
    engine: Annotated[str, Field(min_length=1)]
    quantize: Annotated[str, Field(min_length=1)] | None = None
    """What Jobs that quantize weights run. None: there are none."""
    engines: dict[EngineName, Annotated[str, Field(min_length=1)]] = Field(default_factory=dict)
    """Images of engines that are not ours, by spec.engine.name. Default: the projects' own."""


class PullSecret(Record):
    """A Secret with registry credentials."""

    name: Annotated[str, Field(min_length=1)]
    """Name of the Secret."""


class Prometheus(Record):
    """Where the autoscaler reads what engines and gateways measure."""

    url: Annotated[str, Field(pattern=r"^https?://[^\s?#]+$")]
    """Address of Prometheus, or of what speaks its HTTP API; with a path prefix where it has one."""
    bearer_token_file: Path | None = None
    """File with the bearer token of every query; read anew for each, since tokens rotate."""
    username: Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^:]*$")] | None = None
    """Name that goes with the password, where the server asks for one (basic authentication)."""
    password_file: Path | None = None
    """File with that password; read anew for each query."""
    ca_file: Path | None = None
    """File with the certificate authorities that its certificate is checked against. None: the system's."""
    timeout_seconds: Annotated[float, Field(gt=0, le=60)] = 4
    """Longest wait for the answer to one query; shorter than a tick."""

    @model_validator(mode="after")
    def _one_way_in(self) -> Self:
        if (self.username is None) != (self.password_file is None):
            raise ValueError("username and passwordFile go together: give both or neither")
        if self.password_file is not None and self.bearer_token_file is not None:
            raise ValueError("bearerTokenFile and passwordFile are two ways in: give one")
        return self


class Settings(Record):
    """What an installation decides."""

    images: Images
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    image_pull_secrets: tuple[PullSecret, ...] = ()
    """Secrets for the images of engines and gateways; each namespace with services needs them."""
    watch_namespaces: tuple[str, ...] = ()
    """Namespaces whose services are served; empty: all."""
    node_cache: Annotated[str, Field(max_length=256, pattern=r"^(/[A-Za-z0-9._-]+)+$")] | None = None
    """Folder of every node in which services may keep models, apart for each namespace. None: they may not."""
    prometheus_namespace: str | None = None
    """Namespace that may read metrics of engines and gateways."""
    lease_name: str = "steelyard-operator"
    """Name of the Lease by which one of several replicas leads."""
    workers: Annotated[int, Field(ge=1, le=64)] = 4
    """Services that are reconciled at the same time."""
    resync_seconds: Annotated[float, Field(ge=1, le=86_400)] = 300
    """After this time a service is looked at again though no event came."""
    prometheus: Prometheus | None = None
    """Where the autoscaler reads metrics. None: it takes no decisions, and replicas stay within min and max."""
    tick_seconds: Annotated[float, Field(ge=1, le=300)] = 5
    """Time from one decision of the autoscaler to the next."""

    def site(self, operator_namespace: str) -> Site:
        """Give the part that children depend on."""
        return Site(
            gateway_image=self.images.gateway,
            engine_image=self.images.engine,
            image_pull_policy=self.image_pull_policy,
            image_pull_secrets=tuple(secret.name for secret in self.image_pull_secrets),
            prometheus_namespace=self.prometheus_namespace,
            operator_namespace=operator_namespace,
            node_cache=self.node_cache,
            quantize_image=self.images.quantize,
            engine_images={str(name): image for name, image in self.images.engines.items()},
        )


def load(path: Path) -> Settings:
    """Read and check the file."""
    try:
        content = yaml.safe_load(path.read_text())
    except OSError as failure:
        raise SettingsError(f"{path}: cannot be read: {failure.strerror}") from failure
    except yaml.YAMLError as failure:
        raise SettingsError(f"{path}: is not YAML: {failure}") from failure
    try:
        return Settings.read(content)
    except ValidationError as failure:
        lines = [
            f"{path}: {'.'.join(map(str, error['loc'])) or 'file'}: {error['msg']} (found {error['input']!r})"
            for error in failure.errors(include_url=False)
        ]
        raise SettingsError("\n".join(lines)) from failure


def identity() -> tuple[str, str]:
    """Give this replica's name and namespace, from the pod's environment."""
    return os.environ.get("POD_NAME") or socket.gethostname(), os.environ.get("POD_NAMESPACE") or "default"

"""What the gateway knows of an engine pod, and how it is read from a pods file or from the API server's pods."""

from typing import Annotated

import msgspec

from steelyard.api import labels


class PodsError(ValueError):
    """A list of pods cannot be used; the message says which field and why."""


class Pod(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """One engine pod: where it answers, what it does now, and with whom it can exchange KV."""

    name: str
    address: str
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = labels.ENGINE_PORT
    role: str = labels.PREFILL
    kv_group: str = ""
    ready: bool = True

    @property
    def identity(self) -> str:
        """Name and address together: a pod that came back elsewhere under its old name is another pod."""
        return f"{self.name}@{self.address}:{self.port}"


ROLES = frozenset((labels.PREFILL, labels.DECODE, labels.AGGREGATED))

_decode_pods = msgspec.json.Decoder(tuple[Pod, ...]).decode


def parse_pods_file(text: bytes) -> tuple[Pod, ...]:
    """Read a pods file, a JSON list. Raises PodsError naming what is wrong."""
    try:
        pods = _decode_pods(text)
    except msgspec.MsgspecError as error:
        raise PodsError(f"pods file: {error}") from None
    for pod in pods:
        if pod.role not in ROLES:
            raise PodsError(f"pods file: role of {pod.name} is {pod.role!r}, and must be one of {sorted(ROLES)}")
    return pods


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """The few fields of a Kubernetes object's metadata that matter here."""

    name: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    deletion_timestamp: str | None = None


class Condition(msgspec.Struct, frozen=True):
    """A condition of a pod."""

    type: str
    status: str


class PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    """Where a pod is and how it does."""

    pod_ip: str | None = msgspec.field(default=None, name="podIP")
    conditions: tuple[Condition, ...] | None = None


class KubernetesPod(msgspec.Struct, frozen=True):
    """A pod as the API server shows it, without what is of no use here."""

    metadata: Metadata = Metadata()
    status: PodStatus = PodStatus()


def from_kubernetes(pod: KubernetesPod) -> Pod | None:
    """Return what routing needs of a pod; None while it has no address or no role of ours. It is ready only with
    condition Ready and without a deletionTimestamp."""
    role = pod.metadata.labels.get(labels.ROLE, "")
    if role not in ROLES or not pod.status.pod_ip:
        return None
    ready = any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions or ())
    return Pod(
        name=pod.metadata.name,
        address=pod.status.pod_ip,
        port=labels.ENGINE_PORT,
        role=role,
        kv_group=pod.metadata.labels.get(labels.KV_GROUP, ""),
        ready=ready and pod.metadata.deletion_timestamp is None,
    )

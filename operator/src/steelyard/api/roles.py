"""A role's pods: how many, on what, and the parts of the pod template that users may add to."""

from typing import Annotated

from pydantic import Field

from steelyard.api.engine import Args, Batching, EnvList, ObjectKey
from steelyard.api.number_formats import Quantization
from steelyard.api.parallelism import Parallelism
from steelyard.api.quantities import Quantity
from steelyard.api.record import Free, Record
from steelyard.api.resources import Resources

ReplicaCount = Annotated[int, Field(ge=1, le=1000)]
Name = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
AcceleratorName = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
Labels = Annotated[dict[str, Annotated[str, Field(max_length=4096)]], Field(max_length=64)]

_BY_NAME = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
_ATOMIC = {"x-kubernetes-list-type": "atomic"}


class Replicas(Record):
    """Bounds of a role's number of replicas."""

    min: ReplicaCount = 1
    """Fewest replicas; at least 1 (scale to zero is not supported yet). Default 1."""
    max: ReplicaCount | None = None
    """Most replicas. Default: min, so the role does not grow unless a maximum allows it."""
    initial: ReplicaCount | None = None
    """Replicas when the service is created; afterwards the decision rules. Default: min."""

    @property
    def limit(self) -> int:
        """The effective maximum."""
        return self.min if self.max is None else self.max

    @property
    def start(self) -> int:
        """The effective number at creation."""
        return self.min if self.initial is None else self.initial

    def clamp(self, wanted: int) -> int:
        """Bring a wanted number of replicas into the bounds."""
        return min(max(wanted, self.min), self.limit)


class VolumeMount(Record):
    """Where a container sees a volume of the template."""

    name: Name
    """Name of the volume."""
    mount_path: Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^/")]
    """Absolute path in the container."""
    sub_path: Annotated[str, Field(max_length=1024)] | None = None
    """Path inside the volume. Default: its root."""
    read_only: bool | None = None
    """Whether the container may not write. Default false."""


VolumeMounts = Annotated[
    tuple[VolumeMount, ...],
    Field(
        max_length=32,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["mountPath"]},
    ),
]


class TemplateContainer(Record):
    """What is added to the container of that name. `engine` is the operator's own; any other name is a sidecar."""

    name: Name
    """Name of the container."""
    image: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """Image of a sidecar; for the engine use spec.engine.image."""
    command: Args = ()
    """Command of a sidecar."""
    args: Args = ()
    """Arguments of a sidecar; for the engine use spec.engine.args."""
    env: EnvList = ()
    """Environment variables."""
    resources: Resources | None = None
    """Resources of a sidecar; for the engine use the role's resources."""
    volume_mounts: VolumeMounts = ()
    """Volumes of the template that the container sees."""


class Volume(Record):
    """A volume of the pod; exactly one source. Paths of the node cannot be mounted."""

    name: Name
    """Name of the volume."""
    config_map: Free | None = None
    """A ConfigMap, as in a pod."""
    secret: Free | None = None
    """A Secret, as in a pod."""
    empty_dir: Free | None = None
    """An empty folder that lives as long as the pod, as in a pod."""
    persistent_volume_claim: Free | None = None
    """A claim, as in a pod."""


class TemplateMetadata(Record):
    """Labels and annotations of the pods; the operator's own keys cannot be set."""

    labels: Labels = Field(default_factory=dict)
    """Labels to add."""
    annotations: Labels = Field(default_factory=dict)
    """Annotations to add."""


class PodSpec(Record):
    """The fields of a pod that are merged. What is not listed here (privileges, host access, accounts) cannot be set."""

    node_selector: Labels = Field(default_factory=dict)
    """Labels a node must have, besides those of the accelerator."""
    tolerations: Annotated[tuple[Free, ...], Field(max_length=32, json_schema_extra=_ATOMIC)] = ()
    """Tolerations, as in a pod."""
    affinity: Free | None = None
    """Affinity, as in a pod."""
    topology_spread_constraints: Annotated[tuple[Free, ...], Field(max_length=16, json_schema_extra=_ATOMIC)] = ()
    """Topology spread constraints, as in a pod."""
    priority_class_name: ObjectKey | None = None
    """Priority class of the pods."""
    runtime_class_name: ObjectKey | None = None
    """Runtime class of the pods."""
    scheduler_name: ObjectKey | None = None
    """Scheduler of the pods. Default: the cluster's."""
    image_pull_secrets: Annotated[tuple["SecretName", ...], Field(max_length=8, json_schema_extra=_BY_NAME)] = ()
    """Secrets for pulling images."""
    volumes: Annotated[tuple[Volume, ...], Field(max_length=32, json_schema_extra=_BY_NAME)] = ()
    """Volumes to add."""
    containers: Annotated[tuple[TemplateContainer, ...], Field(max_length=8, json_schema_extra=_BY_NAME)] = ()
    """Additions to the engine's container, and sidecars."""


class SecretName(Record):
    """A Secret of the service's namespace."""

    name: ObjectKey
    """Name of the Secret."""


class PodTemplate(Record):
    """Additions to the role's pods, merged by container name."""

    metadata: TemplateMetadata = TemplateMetadata()
    """Labels and annotations to add."""
    spec: PodSpec = PodSpec()
    """Pod fields to add."""


class Role(Record):
    """The replicas that do one kind of work: prefill (read prompts), decode (write answers), or both (aggregated)."""

    replicas: Replicas = Replicas()
    """How many replicas."""
    resources: Resources = Resources()
    """Resources of one engine."""
    accelerator: AcceleratorName | None = None
    """Accelerator of this role. Default: the service's."""
    parallelism: Parallelism = Parallelism()
    """Overrides of the service's parallelism, field by field."""
    batching: Batching = Batching()
    """Overrides of the service's batching, field by field."""
    quantization: Quantization = Quantization()
    """Overrides of the service's quantization, field by field."""
    shared_memory: Quantity | None = None
    """Size of /dev/shm of an engine in bytes, through which its processes talk; it counts as the pod's memory. Default: what
    the engine needs for its accelerators (1Gi, and 1Gi more for each), with vllm and cache.offload.kind cpu what is offloaded
    too, since that engine keeps it there; none for llama-cpp and simulated."""
    template: PodTemplate = PodTemplate()
    """Additions to the pods."""

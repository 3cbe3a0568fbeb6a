"""`Accelerator`: a kind of hardware, described once for the cluster, so that services can name it."""

from typing import Annotated, Any, Literal

from pydantic import Field

from steelyard.api.quantities import Quantity
from steelyard.api.record import Free, Record
from steelyard.api.roles import Labels

Rate = Annotated[float, Field(gt=0)]


class Peak(Record):
    """Dense peak arithmetic by number format, in floating-point (or integer) operations per second. Absent: no unit for it."""

    fp32: Rate | None = None
    """32-bit floating point."""
    bf16: Rate | None = None
    """16-bit floating point."""
    fp8: Rate | None = None
    """8-bit floating point."""
    fp4: Rate | None = None
    """4-bit floating point."""
    int8: Rate | None = None
    """8-bit integers."""


class Interconnect(Record):
    """The fast links between accelerators."""

    per_direction: Rate
    """Bytes per second that one accelerator can send."""
    domain: Annotated[int, Field(ge=1, le=10_000)]
    """How many accelerators the links join."""
    between_nodes: Rate | None = None
    """Bytes per second that one accelerator can send to another node, outside the domain. Absent: unknown; planning then
    assumes 25e9 (200 Gbit/s)."""


class AcceleratorSpec(Record):
    """What an accelerator is and can do."""

    vendor: Annotated[str, Field(min_length=1, max_length=63)]
    """Who makes it, in lower case."""
    resource: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """Resource of a node that counts it, such as nvidia.com/gpu. Absent: not counted (plain processors)."""
    node_selector: Labels = Field(default_factory=dict)
    """Labels of the nodes that have it."""
    compute_capability: (
        Annotated[str, Field(max_length=16, pattern=r"^([0-9]{1,2}[.][0-9]|gfx[0-9a-f]{3,6})$")] | None
    ) = None
    """Generation of its arithmetic units as kernels name it: 9.0 of NVIDIA, gfx942 of AMD. Decides which number formats have
    a kernel. Absent: unknown, and formats are then accepted with a warning."""
    memory: Quantity | None = None
    """Memory of one accelerator in bytes. Absent: what the container is given."""
    memory_bandwidth: Rate | None = None
    """Bytes per second between memory and arithmetic units."""
    peak: Peak = Peak()
    """Dense peak arithmetic by number format, in operations per second. Absent: no unit for it."""
    interconnect: Interconnect | None = None
    """The fast links between accelerators. Absent: none but the host's bus."""
    per_node: Annotated[int, Field(ge=1, le=1024)] = 1
    """Accelerators in one node. Default 1."""
    power_watts: Rate | None = None
    """Most electrical power of one accelerator, in watts."""
    price_per_hour: Annotated[float, Field(ge=0)] | None = None
    """Price of one accelerator for an hour, in one currency for the whole catalogue. Absent: unknown, which is not
    free: a cost budget then cannot be checked and nothing is added."""
    availability: Literal["Available", "Announced"] = "Available"
    """Announced hardware may be planned with, but no pods are made for it. Default Available."""


class Accelerator(Record):
    """A kind of hardware that engines run on, described once for the cluster."""

    api_version: Literal["serving.steelyard.dev/v1alpha1"] = "serving.steelyard.dev/v1alpha1"
    kind: Literal["Accelerator"] = "Accelerator"
    metadata: Free
    spec: AcceleratorSpec
    """What it is and can do."""

    @property
    def name(self) -> str:
        """The object's name, as services write it."""
        meta: dict[str, Any] = self.metadata.model_extra or {}
        return str(meta["name"])

"""Processors and memory of one container, in Kubernetes' own form."""

from typing import Annotated

from pydantic import Field

from steelyard.api.quantities import Quantity
from steelyard.api.record import Record

Amounts = Annotated[dict[str, Quantity], Field(max_length=16)]


class Resources(Record):
    """Resources of one container, as in a pod. The accelerator's own resource is added by the operator."""

    requests: Amounts = Field(default_factory=dict)
    """What the node must have free: cpu in cores (250m, 2), memory in bytes (512Mi, 4Gi)."""
    limits: Amounts = Field(default_factory=dict)
    """What the container may use at most."""

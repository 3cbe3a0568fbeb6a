"""What the autoscaler has measured about a service and keeps in status, so that a new operator need not learn it again.

For the operator alone: the form may change between versions, and what cannot be read is learnt anew within minutes.
"""

from typing import Annotated, Any

from pydantic import Field

from steelyard.api.record import Record

_ATOMIC: dict[str, Any] = {"x-kubernetes-list-type": "atomic"}
Numbers = Annotated[tuple[float, ...], Field(max_length=16, json_schema_extra=_ATOMIC)]


class LearntSums(Record):
    """Weighted sums of a least-squares fit."""

    moments: Numbers = ()
    """Sums of products of terms."""
    products: Numbers = ()
    """Sums of terms times seconds."""
    samples: float = 0
    """Weight of all samples."""


class LearntStart(Record):
    """How long replicas took to start, in seconds by phase."""

    scheduling: float
    """Until a node was found."""
    loading: float
    """From then until the engine's container ran."""
    warming: float
    """From then until it was ready."""
    samples: int
    """Replicas that were measured."""
    until: float
    """Time of the newest one, in unix seconds."""


class Learnt(Record):
    """What the autoscaler has measured about a service."""

    beta: float = 1
    """Feedback: prefill need over what the model of the engine says."""
    prefill: LearntSums | None = None
    """Of the time of a prefill by its tokens."""
    decode: LearntSums | None = None
    """Of the time of a decode step by batch and context."""
    start: LearntStart | None = None
    """How long replicas take to start."""

"""What the operator reports on an InferenceService. Everything here can be rebuilt from the cluster."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from steelyard.api.learnt import Learnt
from steelyard.api.record import Record

Text = Annotated[str, Field(max_length=1024)]
_ATOMIC = {"x-kubernetes-list-type": "atomic"}


class Condition(Record):
    """One standing statement about the service, in the standard form of Kubernetes conditions."""

    type: Annotated[str, Field(max_length=316, pattern=r"^[A-Za-z][A-Za-z0-9]*$")]
    """What the statement is about, such as Available."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    reason: Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^[A-Za-z][A-Za-z0-9]*$")]
    """Why, in one word made for programs."""
    message: Annotated[str, Field(max_length=32768)] = ""
    """Why and what to do, for people."""
    last_transition_time: datetime
    """When the status last changed."""
    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """The generation of the object that the statement is about."""


class StartSeconds(Record):
    """How long the start of a replica took, in seconds by phase; times of the cluster have whole seconds."""

    scheduled: float
    """From its creation until a node was found."""
    pulled: float
    """Until its images were there and its containers could begin."""
    weights: float
    """While an init container brought the weights. 0 where the engine reads them itself, which is part of `ready`."""
    ready: float
    """From the start of the engine's process until it answered."""
    total: float
    """All of them together."""


class RoleStatus(Record):
    """Replicas of one role, counted by what the pods do now."""

    desired: Annotated[int, Field(ge=0)] = 0
    """Replicas that are wanted."""
    ready: Annotated[int, Field(ge=0)] = 0
    """Replicas that answer."""
    starting: Annotated[int, Field(ge=0)] = 0
    """Replicas that are coming: scheduled, pulling, loading or warming up."""
    draining: Annotated[int, Field(ge=0)] = 0
    """Replicas that finish their work and leave."""
    revision: Text | None = None
    """Revision of the pods that are wanted."""
    start_seconds: StartSeconds | None = None
    """How long the newest replica took to start, of those that the operator saw start; it stays when another operator goes on."""


class ObjectiveStatus(Record):
    """One latency over the window."""

    attainment: Annotated[float, Field(ge=0, le=100)] | None = None
    """Percent of requests that met the objective."""
    p50: Text | None = None
    """Median, as a duration."""
    p95: Text | None = None
    """95th percentile, as a duration."""
    p99: Text | None = None
    """99th percentile, as a duration."""


class ObjectivesStatus(Record):
    """How well the objectives were met over the window. A figure that is not known is absent, never zero."""

    time_to_first_token: ObjectiveStatus | None = None
    """TTFT over the window."""
    time_per_output_token: ObjectiveStatus | None = None
    """TPOT over the window."""
    attainment: Annotated[float, Field(ge=0, le=100)] | None = None
    """Percent of requests that met all objectives."""


class Memory(Record):
    """Memory of one accelerator of a replica that writes answers, computed from the model's shape and the number formats."""

    weights: Text | None = None
    """Bytes of its share of the weights, as a quantity."""
    kv_cache: Text | None = None
    """Bytes that are left for the KV cache, as a quantity."""
    other: Text | None = None
    """Bytes of activations, adapters, a draft model and the engine's workspace, as a quantity."""
    available: Text | None = None
    """Bytes the engine may use, as a quantity."""
    tokens: Annotated[int, Field(ge=0)] | None = None
    """Tokens of KV that one replica holds, in sequences of the full context."""
    sequences: Annotated[int, Field(ge=0)] | None = None
    """Sequences of the full context that one replica holds at once."""


class RolloutStatus(Record):
    """Replicas that are being replaced by those of a new spec."""

    revision: Text
    """Name of the ControllerRevision that holds the children which are brought in."""
    since: datetime
    """When it began."""
    prefill: Text | None = None
    """New replicas of the pool that are ready, of those wanted, such as "1/4"."""
    decode: Text | None = None
    """New replicas of the pool that are ready, of those wanted."""
    aggregated: Text | None = None
    """New replicas of the pool that are ready, of those wanted."""
    objectives_were_met: bool = False
    """Whether the objectives have been met at some time since it began; only then their loss makes it wait."""
    paused: Text | None = None
    """Why it waits, with the figures. Absent while it goes on."""


class QuantizeStatus(Record):
    """A Job that quantizes the weights."""

    job: Text
    """Name of the Job."""
    recipe: Text
    """What it makes: the format, as in quantization.weights."""
    folder: Text
    """Folder of the claim that it fills."""
    state: Literal["Waiting", "Running", "Done", "Failed"]
    """Waiting: its pod does not compute yet."""
    progress: Text | None = None
    """How far it is, such as "layer 12 of 30", or what it waits for, or the last lines of its log where it failed."""


class Decision(Record):
    """One decision on replicas and roles."""

    time: datetime
    """When it was taken."""
    action: Text
    """What was done, such as "prefill 2→3, decode 6→5 (role change)"."""
    because: Annotated[tuple[Text, ...], Field(max_length=16, json_schema_extra=_ATOMIC)] = ()
    """The terms that led to it, one sentence each, the one that ruled first."""
    limited_by: Literal[
        "Budget", "Ratio", "Min", "Max", "MetricsStale", "UnknownCost", "Unschedulable", "StartFailing", "None"
    ] = "None"
    """What kept it from more."""
    applied: bool = True
    """Whether it was carried out; false in mode Recommend."""
    prefill: Annotated[int, Field(ge=0)] | None = None
    """Replicas that it wants to read prompts."""
    decode: Annotated[int, Field(ge=0)] | None = None
    """Replicas that it wants to write answers."""
    aggregated: Annotated[int, Field(ge=0)] | None = None
    """Replicas that it wants to do both."""
    learnt: Learnt | None = None
    """What has been measured about the service. Absent in the history."""


class Status(Record):
    """What the operator has seen and done."""

    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """The generation of the spec that this status is about."""
    model: Text | None = None
    """Name of the model that clients send."""
    url: Text | None = None
    """Address of the OpenAI API inside the cluster."""
    ratio: Text | None = None
    """prefill:decode now, in ready accelerators."""
    ready: Text | None = None
    """Ready of wanted replicas over all roles, such as 3/4."""
    prefill: RoleStatus | None = None
    """Replicas that read prompts."""
    decode: RoleStatus | None = None
    """Replicas that write answers."""
    aggregated: RoleStatus | None = None
    """Replicas that do both."""
    objectives: ObjectivesStatus | None = None
    """How well the objectives were met."""
    memory: Memory | None = None
    """Memory of one accelerator of a replica. Absent where the model or the accelerator is not known well enough."""
    rollout: RolloutStatus | None = None
    """The replacement of replicas by those of a new spec. Absent where none is under way."""
    quantization: Annotated[tuple[QuantizeStatus, ...], Field(max_length=2, json_schema_extra=_ATOMIC)] | None = None
    """The Jobs that quantize the weights of the spec, while the engines wait for them. Absent once all are done."""
    decision: Decision | None = None
    """The latest decision of the autoscaler. Absent in mode Off, and where the operator has no Prometheus."""
    history: Annotated[tuple[Decision, ...], Field(max_length=10, json_schema_extra=_ATOMIC)] = ()
    """Decisions that changed something, latest first."""
    conditions: Annotated[
        tuple[Condition, ...],
        Field(
            max_length=16,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
    ] = ()
    """Standing statements: Accepted, ObjectivesFeasible, ModelReady, Progressing, Available, MetricsFresh, ObjectivesMet,
    ScalingActive, ScalingLimited, Paused."""

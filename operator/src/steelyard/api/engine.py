"""The program that computes tokens, and how it forms batches."""

from typing import Annotated, Literal

from pydantic import Field

from steelyard.api.forms import Form
from steelyard.api.quantities import Duration
from steelyard.api.record import Record

EngineName = Literal["llama-cpp", "simulated", "vllm", "sglang", "tensorrt-llm"]
Strategy = Literal["static", "dynamic", "continuous", "chunked"]

VERSION = Form(r"[0-9]{1,4}[.][0-9]{1,4}([.][0-9]{1,4})?", "write two or three numbers, such as 0.32 or 0.32.0")

EnvName = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$")]
ObjectKey = Annotated[str, Field(min_length=1, max_length=253)]


class KeySelector(Record):
    """One key of a Secret or ConfigMap of the service's namespace."""

    name: ObjectKey
    """Name of the object."""
    key: ObjectKey
    """The key in it."""
    optional: bool | None = None
    """Whether the pod may start without it. Default false."""


class FieldSelector(Record):
    """A field of the pod, such as status.podIP."""

    field_path: ObjectKey
    """Path of the field."""


class EnvSource(Record):
    """Where the value of a variable comes from; exactly one of the fields."""

    secret_key_ref: KeySelector | None = None
    """A key of a Secret."""
    config_map_key_ref: KeySelector | None = None
    """A key of a ConfigMap."""
    field_ref: FieldSelector | None = None
    """A field of the pod."""


class EnvVar(Record):
    """One environment variable."""

    name: EnvName
    """Name of the variable."""
    value: Annotated[str, Field(max_length=4096)] | None = None
    """Its value, as text."""
    value_from: EnvSource | None = None
    """Where the value comes from instead."""


EnvList = Annotated[
    tuple[EnvVar, ...],
    Field(
        max_length=64,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    ),
]
Args = Annotated[
    tuple[Annotated[str, Field(max_length=4096)], ...],
    Field(max_length=64, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
]


class Engine(Record):
    """The program that computes tokens."""

    name: EngineName = "llama-cpp"
    """llama-cpp: the embedded engine, real computation on processors. simulated: the same server, which computes
    nothing and keeps the time of the named accelerator, to rehearse objectives and scaling without hardware. vllm,
    sglang, tensorrt-llm: those engines, on accelerators. docs/reference/engines.md says which setting each of them has.
    Default llama-cpp."""
    version: Annotated[str, Field(max_length=32), VERSION] | None = None
    """Version of the engine, by which flags and abilities are judged; write it where `image` holds another one than the
    operator's. Default: what the tag of the image tells, where its first number is that of the operator's version of this
    engine, else that version. Without `image` it must be of the release that the installation has an image of; that is judged
    when children are rendered, so an upgrade of the operator takes nothing from a service that runs."""
    image: Annotated[str, Field(min_length=1, max_length=512, pattern=r"^[^\s]+$")] | None = None
    """Image of the engine. Default: the operator's setting for this engine, else the project's own. tensorrt-llm has none of
    its own: one of the two must name it."""
    prepull: bool = False
    """Whether every node that may run an engine gets its image, and that of its weights, beforehand, by a DaemonSet of tiny pods
    that take no accelerator: a replica then starts without waiting for them. Both must have the program `true`. Images of
    containers that a template adds are not fetched beforehand. Default false."""
    model_runner: Literal["Auto", "V1", "V2"] = "Auto"
    """Which of vLLM's two model runners computes the steps; other engines have one only. Auto: V2 where the version and
    the settings allow it. Default Auto."""
    memory_utilization: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Share of an accelerator's memory that the engine may use for weights, cache and workspace, such as 0.9. The engine's
    own default where nothing is written: 0.9 for vllm and tensorrt-llm; sglang computes one."""
    args: Args = ()
    """Extra flags of the engine. One that a typed field or the operator owns is refused, with that field's name."""
    env: EnvList = ()
    """Extra environment variables of the engine."""


class Batching(Record):
    """How an engine forms batches. A field that is set on a role overrides the service's."""

    strategy: Strategy | None = None
    """static: a full batch runs to its end before the next one starts. dynamic: as static, but waits at most maxWait
    for a batch to fill. continuous: requests join and leave at each step. chunked: as continuous, and long prompts
    are cut to maxBatchTokens so that running answers are not held up. Engines on accelerators have continuous and chunked,
    tensorrt-llm also dynamic. Default chunked."""
    max_sequences: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Most requests in one batch. More share each step, which raises throughput and the time per output token. Default: 8
    for llama-cpp, 256 for the others."""
    max_batch_tokens: Annotated[int, Field(ge=16, le=1_048_576)] | None = None
    """Most tokens of one step. Fewer keep running answers smooth while prompts are read, more read prompts faster. Without
    chunks a whole prompt must fit, so it must then be at least contextLength. Default: 512 for llama-cpp, 8192 for the
    others, raised to contextLength where the strategy does not cut prompts."""
    max_wait: Duration | None = None
    """Longest time the first request waits for others; only with strategy dynamic. Default 50ms."""

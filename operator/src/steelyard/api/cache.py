"""The memory of attention keys and values: what it holds, what it forgets, and where it overflows to."""

from typing import Annotated, Literal

from pydantic import Field

from steelyard.api.quantities import Quantity
from steelyard.api.record import Record

EvictionPolicy = Literal["none", "streaming", "h2o", "snapkv"]
OffloadKind = Literal["none", "cpu", "lmcache", "mooncake", "pegaflow"]
Tokens = Annotated[int, Field(ge=1, le=16_777_216)]


class Eviction(Record):
    """Which tokens of a long sequence are forgotten, so that it needs less memory. What is forgotten can change answers."""

    policy: EvictionPolicy = "none"
    """none: every token is kept. streaming: the first sinkTokens and the last windowTokens. h2o: the budgetTokens that
    drew most attention so far. snapkv: the budgetTokens that the end of the prompt attends to. Default none."""
    sink_tokens: Tokens | None = None
    """Tokens kept from the beginning; only with streaming. Default 4."""
    window_tokens: Tokens | None = None
    """Tokens kept from the end; needed with streaming, and only there."""
    budget_tokens: Tokens | None = None
    """Tokens kept of a sequence; needed with h2o and snapkv, and only there."""


class Offload(Record):
    """Where keys and values go that no longer fit the accelerator's memory, to be fetched instead of computed again."""

    kind: OffloadKind = "none"
    """none: they are dropped. cpu: into the pod's own memory. lmcache, mooncake: into that store, which replicas may share.
    pegaflow: into the PegaFlow server that runs on the node, on port 50055. Default none."""
    memory: Quantity | None = None
    """Bytes of its own memory that one pod gives to it, shared evenly by its accelerators and added to the engine's memory
    request; not with pegaflow, whose server has its own. Of sglang with mooncake one half is the engine's and one the store's.
    Default 16Gi."""
    address: (
        Annotated[str, Field(min_length=3, max_length=253, pattern=r"^[A-Za-z0-9][A-Za-z0-9.-]*:[0-9]{1,5}$")] | None
    ) = None
    """HOST:PORT of the shared store: the mooncake master, which it needs, or an LMCache server. Default: nothing is shared
    between replicas."""


class Cache(Record):
    """The memory of attention keys and values (KV cache) of one engine replica."""

    kv_tokens: Annotated[int, Field(ge=256, le=1_073_741_824)] | None = None
    """Tokens the KV cache of one replica holds. Default: for llama-cpp and simulated maxSequences × contextLength, so that
    every sequence can reach its full length; for the others what fits into memoryUtilization."""
    prefix_reuse: bool | None = None
    """Whether requests that begin alike share what was computed for the beginning. Default true."""
    block_tokens: Literal[1, 8, 16, 32, 64, 128, 256] | None = None
    """Tokens of one block of the cache, the unit in which memory is given out and beginnings are compared. Prefill and
    decode must agree, so it cannot be set by role. Default: what the engine chooses, mostly 16."""
    events: bool | None = None
    """Whether engines publish which blocks they hold, over ZeroMQ on port 5557, for a router of your own. They tell the tokens
    of prompts, so only pods of the namespace with the label serving.steelyard.dev/service: NAME of the service reach that
    port; give it to your router. Default false."""
    eviction: Eviction = Eviction()
    """Which tokens of a long sequence are forgotten. Default: none."""
    offload: Offload = Offload()
    """Where keys and values go that no longer fit. Default: nowhere."""

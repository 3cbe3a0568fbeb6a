"""`InferenceService`: one model, served by prefill and decode pods (or one aggregated pool) behind a gateway."""

from typing import Any, Literal, TypeVar

from steelyard.api.cache import Cache
from steelyard.api.engine import Batching, Engine
from steelyard.api.goals import Autoscaling, Objectives
from steelyard.api.labels import AGGREGATED, DECODE, PREFILL
from steelyard.api.model import ModelSpec
from steelyard.api.number_formats import Quantization
from steelyard.api.parallelism import Parallelism
from steelyard.api.quantities import Duration
from steelyard.api.record import Free, Record
from steelyard.api.roles import AcceleratorName, Role
from steelyard.api.rollout import Rollout
from steelyard.api.speculation import Speculation
from steelyard.api.status import Status
from steelyard.api.traffic import Connector, Routing, Transfer

# maxSequences and maxBatchTokens where nobody says otherwise: what the engine's usual hardware does well with.
EMBEDDED_BATCH, ACCELERATED_BATCH = (8, 512), (256, 8192)
MAX_WAIT = Duration("50ms")

Block = TypeVar("Block", bound=Record)


class InferenceServiceSpec(Record):
    """What is served, by what, and how well."""

    model: ModelSpec
    """The model that is served."""
    engine: Engine = Engine()
    """The program that computes tokens."""
    topology: Literal["Disaggregated", "Aggregated"] = "Disaggregated"
    """Disaggregated: prompts are read by prefill pods and answers are written by decode pods. Aggregated: each pod
    does both. Default Disaggregated."""
    accelerator: AcceleratorName = "cpu"
    """Name of the Accelerator the engines run on (`kubectl get accelerators`). Default cpu."""
    parallelism: Parallelism = Parallelism()
    """How one replica is spread over accelerators."""
    quantization: Quantization = Quantization()
    """Number formats with fewer bits than the model was trained in."""
    batching: Batching = Batching()
    """How engines form batches."""
    cache: Cache = Cache()
    """The KV cache of one engine replica."""
    speculation: Speculation = Speculation()
    """Cheap guesses at the next tokens, checked by the model in one step."""
    prefill: Role | None = None
    """The replicas that read prompts; only with topology Disaggregated. Default: one replica."""
    decode: Role | None = None
    """The replicas that write answers; only with topology Disaggregated. Default: one replica."""
    aggregated: Role | None = None
    """The replicas that do both; only with topology Aggregated. Default: one replica."""
    transfer: Transfer = Transfer()
    """How the KV state of a prompt reaches the decode pod."""
    routing: Routing = Routing()
    """The gateway in front of the engines."""
    objectives: Objectives = Objectives()
    """Latency objectives, judged per request at the gateway. A request counts as met when it meets all that are set."""
    autoscaling: Autoscaling = Autoscaling()
    """How far the operator may change the number and the roles of replicas."""
    rollout: Rollout = Rollout()
    """How a change of the service reaches its pods."""

    @property
    def roles(self) -> dict[str, Role]:
        """The roles this topology has, by name, unwritten ones at their defaults."""
        if self.topology == "Aggregated":
            return {AGGREGATED: self.aggregated or Role()}
        return {PREFILL: self.prefill or Role(), DECODE: self.decode or Role()}

    def accelerator_of(self, role: str) -> str:
        """Name the accelerator of a role: its own, else the service's."""
        return self.roles[role].accelerator or self.accelerator

    def batching_of(self, role: str) -> Batching:
        """Resolve a role's batching field by field, role over service over engine default: no field is left unset
        but `max_wait`, which only strategy dynamic has."""
        own, shared = self.roles[role].batching, self.batching
        sequences, tokens = EMBEDDED_BATCH if self.engine.name == "llama-cpp" else ACCELERATED_BATCH
        strategy = own.strategy or shared.strategy or "chunked"
        if strategy != "chunked":
            tokens = max(tokens, self.model.context_length)
        return Batching(
            strategy=strategy,
            max_sequences=own.max_sequences or shared.max_sequences or sequences,
            max_batch_tokens=own.max_batch_tokens or shared.max_batch_tokens or tokens,
            max_wait=(own.max_wait or shared.max_wait or MAX_WAIT) if strategy == "dynamic" else None,
        )

    def parallelism_of(self, role: str) -> Parallelism:
        """Resolve a role's parallelism field by field, role over service over one accelerator: no field is left unset."""
        unwritten = Parallelism(tensor=1, pipeline=1, data=1, expert=False)
        return _over(_over(unwritten, self.parallelism), self.roles[role].parallelism)

    def quantization_of(self, role: str) -> Quantization:
        """Resolve a role's number formats field by field, role over service over default: no field is left unset."""
        unwritten = Quantization(
            weights="auto",
            activations="auto",
            kv_cache="auto",
            attention="auto",
            source="Checkpoint",
            lossless_compression=False,
        )
        return _over(_over(unwritten, self.quantization), self.roles[role].quantization)

    @property
    def connector(self) -> Connector:
        """What moves KV state: the written connector, else the engine's usual one."""
        return self.transfer.connector or ("http" if self.engine.name in ("llama-cpp", "simulated") else "nixl")

    def kv_tokens_of(self, role: str) -> int:
        """Tokens the KV cache of one replica of a role holds."""
        return self.cache.kv_tokens or (self.batching_of(role).max_sequences or 1) * self.model.context_length


def _over(below: Block, above: Block) -> Block:
    """Lay the fields that are set in `above` over `below`."""
    return below.model_copy(update={name: value for name, value in above if value is not None})


class InferenceService(Record):
    """One model, served by prefill and decode pods, or by one aggregated pool, behind a gateway."""

    api_version: Literal["serving.steelyard.dev/v1alpha1"] = "serving.steelyard.dev/v1alpha1"
    kind: Literal["InferenceService"] = "InferenceService"
    metadata: Free
    spec: InferenceServiceSpec
    """What the user asks for."""
    status: Status | None = None
    """What the operator has seen and done."""

    @property
    def name(self) -> str:
        """The object's name."""
        return str(self._meta["name"])

    @property
    def namespace(self) -> str:
        """The object's namespace."""
        return str(self._meta.get("namespace", "default"))

    @property
    def served_name(self) -> str:
        """The model's name in the OpenAI API: the written one, else the object's name."""
        return self.spec.model.served_name or self.name

    @property
    def _meta(self) -> dict[str, Any]:
        return self.metadata.model_extra or {}

"""What is served: where the weights are, under which name, and the facts that planning needs before they can be read."""

import re
from typing import Annotated, Literal

from pydantic import Field

from steelyard.api.forms import Form
from steelyard.api.record import Record

_SEGMENT = r"[A-Za-z0-9_][A-Za-z0-9_.+-]*"  # never "..": a path cannot leave the folder of the weights
_PATH = rf"(/({_SEGMENT}(/{_SEGMENT})*))?"
_OCI = rf"oci://(([A-Za-z0-9.-]+:[0-9]+/)?[a-z0-9][a-z0-9._/-]*:[A-Za-z0-9_][A-Za-z0-9_.-]*(@sha256:[0-9a-f]{{64}})?){_PATH}"
_PVC = rf"pvc://([a-z0-9]([-a-z0-9.]*[a-z0-9])?){_PATH}"
_S3 = rf"s3://([a-z0-9][a-z0-9.-]{{1,61}}[a-z0-9]){_PATH}"
_HUB = r"hf://([A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*)(@([A-Za-z0-9][A-Za-z0-9._/-]*))?"

URI = Form(
    rf"{_OCI}|{_PVC}|{_HUB}|{_S3}",
    "write hf://OWNER/NAME[@REVISION], oci://NAME:TAG[@DIGEST][/PATH], pvc://CLAIM[/PATH] or s3://BUCKET[/PATH]",
)
ADAPTER_URI = Form(rf"{_PVC}|{_HUB}", "write hf://OWNER/NAME or pvc://CLAIM/PATH")
SERVED_NAME = Form(
    r"[A-Za-z0-9][A-Za-z0-9._/:+-]*", "write letters, digits and . _ / : + - alone, the first a letter or digit"
)

Count = Annotated[int, Field(ge=1, le=10_000_000)]


class ModelShape(Record):
    """Facts of the model's config.json, for planning before the weights can be read."""

    parameters: Annotated[int, Field(ge=1)] | None = None
    """Number of weights, all experts counted."""
    active_parameters: Annotated[int, Field(ge=1)] | None = None
    """Weights that one token passes through; of a mixture of experts. Default: parameters."""
    layers: Count | None = None
    """Number of transformer layers."""
    hidden_size: Count | None = None
    """Width of the residual stream."""
    attention_heads: Count | None = None
    """Query heads of one layer."""
    kv_heads: Count | None = None
    """Key and value heads of one layer; fewer than the attention heads where they are grouped. Default: attentionHeads."""
    head_dimension: Count | None = None
    """Width of one attention head. Default: hiddenSize / attentionHeads."""
    intermediate_size: Count | None = None
    """Width of the feed-forward layer."""
    vocabulary: Count | None = None
    """Number of tokens the model knows."""
    tied_embeddings: bool | None = None
    """Whether input and output embeddings are one matrix. Default false."""
    experts: Count | None = None
    """Routed experts of one layer; makes the model a mixture of experts."""
    experts_per_token: Count | None = None
    """Routed experts that one token visits in a layer."""
    shared_experts: Annotated[int, Field(ge=0, le=10_000)] | None = None
    """Experts that every token visits. Default 0."""
    expert_intermediate_size: Count | None = None
    """Width of one expert's feed-forward layer. Default: intermediateSize."""
    dense_layers: Annotated[int, Field(ge=0, le=10_000)] | None = None
    """First layers that have one feed-forward layer instead of experts. Default 0."""
    kv_rank: Count | None = None
    """Width of the latent that keys and values are kept as (kv_lora_rank); makes the attention multi-head latent (MLA)."""
    rope_dimension: Count | None = None
    """Width of the key part that carries the position and is shared by all heads (qk_rope_head_dim); with kvRank."""
    sliding_window: Count | None = None
    """Tokens that a layer with a sliding window looks back."""
    sliding_layers: Annotated[int, Field(ge=0, le=10_000)] | None = None
    """Layers that have the sliding window. Default: all, where slidingWindow is set."""
    state_layers: Annotated[int, Field(ge=0, le=10_000)] | None = None
    """Layers that keep a state of fixed size instead of keys and values (linear attention, Mamba); makes it a hybrid. Default 0."""
    state_bytes: Annotated[int, Field(ge=1)] | None = None
    """Bytes of that state in one layer for one sequence."""


class Adapter(Record):
    """A LoRA adapter, which clients ask for by its name in place of the model's."""

    name: Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    """Name in the OpenAI API."""
    uri: Annotated[str, Field(min_length=7, max_length=512), ADAPTER_URI]
    """Where it is: hf://OWNER/NAME, whose newest revision the pod fetches, or pvc://CLAIM/PATH, a claim of the service's
    namespace."""
    rank: Literal[8, 16, 32, 64, 128, 256, 320, 512] | None = None
    """Highest rank of its matrices; the largest of all adapters sets how much memory each takes. Default 16."""

    @property
    def source(self) -> "HubSource | PvcSource":
        """Take the URI apart."""
        if match := re.fullmatch(_PVC, self.uri):
            return PvcSource(claim=match[1], path=match[4])
        if match := re.fullmatch(_HUB, self.uri):
            return HubSource(repository=match[1], revision=match[3])
        raise AssertionError(f"{self.uri!r} passed the pattern but does not parse")


class Credentials(Record):
    """What the pod shows to where the weights are; nothing is ever written into the service itself."""

    secret_name: Annotated[str, Field(min_length=1, max_length=253)]
    """Secret of the service's namespace. Of a model hub: key `token`, which may be left out where `cache` is used, and
    `endpoint`, the address of another hub or a mirror. Of an object store: keys `accessKeyId`, `secretAccessKey` and
    `endpoint`."""


class OciSource(Record):
    """Weights in the folder /weights of an image."""

    scheme: Literal["oci"] = "oci"
    image: str
    path: str | None = None


class PvcSource(Record):
    """Weights on a volume that exists already in the service's namespace."""

    scheme: Literal["pvc"] = "pvc"
    claim: str
    path: str | None = None


class HubSource(Record):
    """Weights in a repository of a model hub, fetched by the pod."""

    scheme: Literal["hf"] = "hf"
    repository: str
    revision: str | None = None


class ObjectSource(Record):
    """Weights in a bucket of an object store, read by the pod."""

    scheme: Literal["s3"] = "s3"
    bucket: str
    path: str | None = None


ModelSource = OciSource | PvcSource | HubSource | ObjectSource


class ModelCache(Record):
    """Where the files of a hub's repository are kept for all replicas, fetched once and checked by their digests."""

    kind: Literal["none", "claim", "node"] = "none"
    """none: every replica fetches the files anew. claim: they are kept on a claim of the service's namespace, which all replicas
    mount. node: they are kept on each node, apart for each namespace, in the folder that the installation has set aside for
    that (nodeCache); without one it is refused. It is a hostPath volume, which namespaces with the pod security level baseline
    or restricted refuse (reason PodsRefused). Whoever starts first fills it, the others wait. Default none."""
    claim: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")] | None = (
        None
    )
    """Name of the PersistentVolumeClaim; with kind claim. Replicas on several nodes need one that many nodes may write."""
    files: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[A-Za-z0-9_.*?\[\]!/ -]+$")], ...],
        Field(max_length=16, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
    ] = ()
    """Only the files whose path in the repository matches one of these shell patterns, such as *Q8_0.gguf. Default: all but
    second copies of the weights in formats of other frameworks."""


class ModelSpec(Record):
    """The model that is served."""

    uri: Annotated[str, Field(min_length=7, max_length=1024), URI]
    """Where the weights are. oci://NAME:TAG[@DIGEST][/PATH] is an image that holds them under /weights; pvc://CLAIM[/PATH] is a
    claim in the service's namespace, mounted read-only; hf://OWNER/NAME[@REVISION] is a repository of a model hub,
    fetched by the pod; s3://BUCKET[/PATH] is read by the pod from an object store. PATH
    leads to one file or folder. Which of them an engine takes is in
    docs/reference/engines.md. The operator itself never fetches a URI."""
    served_name: Annotated[str, Field(min_length=1, max_length=256), SERVED_NAME] | None = None
    """Name of the model in the OpenAI API, as clients send it. Default: the name of the InferenceService."""
    context_length: Annotated[int, Field(ge=16, le=16_777_216)] = 2048
    """Most tokens of one request, prompt and answer together. Default 2048."""
    credentials: Credentials | None = None
    """What the pod shows to where the weights are. Default: nothing."""
    cache: ModelCache = ModelCache()
    """Where the files of a hub's repository (hf://) are kept for all replicas. Default: nowhere."""
    trust_remote_code: bool = False
    """Whether Python code in the model's repository may run in the engine. Only for repositories that you have read, at a
    fixed revision. Default false."""
    adapters: Annotated[
        tuple[Adapter, ...],
        Field(
            max_length=64,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ] = ()
    """LoRA adapters served beside the model, each under its own name. Each takes memory of every replica."""
    shape: ModelShape | None = None
    """Facts of the model's config.json, for planning before the weights can be read."""

    @property
    def source(self) -> ModelSource:
        """Take the URI apart; the pattern of the field has already admitted its form."""
        if match := re.fullmatch(_OCI, self.uri):
            return OciSource(image=match[1], path=match[5])
        if match := re.fullmatch(_PVC, self.uri):
            return PvcSource(claim=match[1], path=match[4])
        if match := re.fullmatch(_HUB, self.uri):
            return HubSource(repository=match[1], revision=match[3])
        if match := re.fullmatch(_S3, self.uri):
            return ObjectSource(bucket=match[1], path=match[3])
        raise AssertionError(f"{self.uri!r} passed the pattern but does not parse")

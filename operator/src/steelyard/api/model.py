"""What is served: where the weights are, under which name, and the facts that planning needs before they can be read."""

import re
from typing import Annotated, Literal

from pydantic import Field

from steelyard.api.record import Record

_SEGMENT = r"[A-Za-z0-9_][A-Za-z0-9_.+-]*"  # never "..": a path cannot leave the folder of the weights
_PATH = rf"(/({_SEGMENT}(/{_SEGMENT})*))?"
_OCI = rf"oci://(([A-Za-z0-9.-]+:[0-9]+/)?[a-z0-9][a-z0-9._/-]*:[A-Za-z0-9_][A-Za-z0-9_.-]*(@sha256:[0-9a-f]{{64}})?){_PATH}"
_PVC = rf"pvc://([a-z0-9]([-a-z0-9.]*[a-z0-9])?){_PATH}"
_HUB = r"hf://([A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*)(@([A-Za-z0-9][A-Za-z0-9._/-]*))?"

Count = Annotated[int, Field(ge=1, le=10_000_000)]


class ModelShape(Record):
    """Facts of the model's config.json, for planning before the weights can be read."""

    parameters: Annotated[int, Field(ge=1)] | None = None
    """Number of weights."""
    layers: Count | None = None
    """Number of transformer layers."""
    hidden_size: Count | None = None
    """Width of the residual stream."""
    attention_heads: Count | None = None
    """Query heads of one layer."""
    kv_heads: Count | None = None
    """Key and value heads of one layer; fewer than the attention heads where they are grouped."""
    head_dimension: Count | None = None
    """Width of one attention head. Default: hiddenSize / attentionHeads."""
    intermediate_size: Count | None = None
    """Width of the feed-forward layer."""
    vocabulary: Count | None = None
    """Number of tokens the model knows."""


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


ModelSource = OciSource | PvcSource | HubSource


class ModelSpec(Record):
    """The model that is served."""

    uri: Annotated[
        str,
        Field(
            min_length=7,
            max_length=1024,
            pattern=rf"^({_OCI}|{_PVC}|{_HUB})$",
        ),
    ]
    """Where the weights are. oci://NAME:TAG[@DIGEST][/PATH] is an image that holds them under /weights; pvc://CLAIM[/PATH] is a
    claim in the service's namespace, mounted read-only; hf://OWNER/NAME[@REVISION] is a repository of a model hub,
    fetched by the pod. PATH leads to one file or folder. The operator itself never fetches a URI."""
    served_name: (
        Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[A-Za-z0-9][A-Za-z0-9._/:+-]*$")] | None
    ) = None
    """Name of the model in the OpenAI API, as clients send it. Default: the name of the InferenceService."""
    context_length: Annotated[int, Field(ge=16, le=16_777_216)] = 2048
    """Most tokens of one request, prompt and answer together. Default 2048."""
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
        raise AssertionError(f"{self.uri!r} passed the pattern but does not parse")

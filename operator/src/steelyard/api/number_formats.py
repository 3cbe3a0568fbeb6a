"""Number formats: how weights, activations, cached keys and values, and attention itself are stored and computed."""

from typing import Annotated, Literal

from pydantic import Field

from steelyard.api.record import Record
from steelyard.api.resources import Resources

WeightFormat = Literal["auto", "none", "fp8", "int8", "int4-awq", "int4-gptq", "nvfp4", "mxfp4", "nf4", "ternary"]
ActivationFormat = Literal["auto", "none", "fp8", "int8", "nvfp4"]
KvFormat = Literal["auto", "none", "fp8", "int8", "int4", "kivi-2", "kivi-4", "mixed"]
AttentionFormat = Literal["auto", "none", "fp8"]
QuantizationSource = Literal["Checkpoint", "Load", "Job"]


class QuantizeJob(Record):
    """How the weights are quantized once, with source Job."""

    claim: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")] | None = (
        None
    )
    """PersistentVolumeClaim of the service's namespace that gets the quantized checkpoint, in a folder named after the model's
    revision and the recipe, so that services which name the same claim share it. Replicas on several nodes need one that
    many nodes may mount. Default: the claim that holds the weights (model.cache.claim, or that of pvc://)."""
    samples: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Windows of 512 tokens that formats with calibration look at; more take longer and fit better. Default 128."""
    resources: Resources = Resources()
    """Resources of the Job's pod. It computes on processors and holds one layer and the samples at a time. Default: requests
    of 1 cpu and 2Gi of memory."""


class Quantization(Record):
    """Number formats with fewer bits than the model was trained in. A field that is set on a role overrides the service's.

    Fewer bits mean less memory, so more sequences at once, and less to read a step, so faster answers; each format
    costs some quality, and each needs a kernel on the accelerator.
    """

    weights: WeightFormat | None = None
    """Format of the weights. auto: what the checkpoint says. none: the checkpoint's 16-bit numbers. fp8, int8: one byte a
    weight. int4-awq, int4-gptq, nvfp4, mxfp4, nf4: about half a byte with its scales. ternary: -1, 0, 1, for models
    trained so. Prefill and decode may differ. Default auto."""
    activations: ActivationFormat | None = None
    """Format of what flows between layers, which decides whether matrices are multiplied in fewer bits. auto: what the
    format of the weights calls for. none: 16 bits. Default auto."""
    kv_cache: KvFormat | None = None
    """Format of cached keys and values. fp8, int8: half the memory of 16 bits, so twice the tokens; int4: a quarter.
    kivi-2, kivi-4: keys by channel, values by token. mixed: bits by layer. auto: what the engine chooses. none: 16
    bits. Prefill and decode must agree. Default auto."""
    attention: AttentionFormat | None = None
    """Format in which attention is multiplied. fp8: queries, keys, probabilities and values in 8 bits; needs kvCache
    fp8. auto: what the engine chooses. none: 16 bits. Default auto."""
    source: QuantizationSource | None = None
    """Who quantizes the weights. Checkpoint: they are stored in that format already. Load: the engine does it each time it
    starts, from 16-bit weights. Job: the operator has it done once for each revision of the model and format, into a volume,
    before the engines start; what serves meanwhile goes on. Default Checkpoint."""
    job: QuantizeJob | None = None
    """How that is done with source Job."""
    lossless_compression: bool | None = None
    """Whether weights are held compressed without loss and decoded while computing: about a tenth less memory for
    slower steps. Default false."""

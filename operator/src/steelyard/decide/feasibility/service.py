"""From an InferenceService and its Accelerators to what feasibility is judged by, and the judgement.

The shape of the model is that of the catalogue where the repository's name is known, overlaid by what `spec.model.shape`
says; where neither says enough, nothing that needs a shape is judged, and that is told.
"""

from collections.abc import Mapping
from dataclasses import replace

from steelyard.api.accelerator import Accelerator
from steelyard.api.labels import DECODE, PREFILL
from steelyard.api.model import HubSource, ModelShape, ModelSpec
from steelyard.api.reasons import Reason
from steelyard.api.service import InferenceService
from steelyard.catalog import models, versions
from steelyard.catalog.engines import ENGINES, version_told
from steelyard.catalog.shapes import Shape
from steelyard.decide.feasibility import scaling
from steelyard.decide.feasibility.facts import shape_of
from steelyard.decide.feasibility.findings import Finding
from steelyard.decide.feasibility.inputs import Pair, Side, Targets
from steelyard.decide.feasibility.judge import EMBEDDED, Judgement, judge
from steelyard.decide.model.layout import Layout

DEFAULT_UTILIZATION = 0.9
SINK_TOKENS = 4


def judged(service: InferenceService, accelerators: Mapping[str, Accelerator | None]) -> Judgement:
    """Judge a service; one whose model or hardware is not known is judged by nothing and told so."""
    made = sides(service, accelerators)
    spec = service.spec
    ttft, tpot = spec.objectives.time_to_first_token, spec.objectives.time_per_output_token
    targets = Targets(ttft.seconds if ttft else None, tpot.seconds if tpot else None)
    told = _unmeasured(service)
    if made is None:
        return Judgement((*_unknown(service), *told))
    pair = None
    if PREFILL in made and DECODE in made:
        pair = Pair(made[PREFILL], made[DECODE], spec.connector, spec.transfer.network)
    found = judge(tuple(made.values()), pair, targets)
    return replace(found, findings=(*found.findings, *told))


def _unknown(service: InferenceService) -> tuple[Finding, ...]:
    spec = service.spec
    if spec.engine.name in (EMBEDDED, "simulated") or known_shape(spec.model) is not None:
        return ()
    problem = (
        "the model is not in the catalogue, so neither memory nor parallelism nor objectives were checked; "
        "write the facts of its config.json here"
    )
    return (
        Finding(
            Reason.VALID, "spec.model.shape", "(incomplete)" if spec.model.shape else "(absent)", problem, refused=False
        ),
    )


def _unmeasured(service: InferenceService) -> tuple[Finding, ...]:
    """Tell that nothing will be scaled, where bounds leave room for it and the load of the engine cannot be read.

    A note and no refusal: Auto is the default, and the service itself runs well.
    """
    mode, engine = service.spec.autoscaling.mode, service.spec.engine.name
    roomy = [role for role, spec in service.spec.roles.items() if spec.replicas.min < spec.replicas.limit]
    first, own = versions.version(ENGINES[engine].measured_from), _version(service)
    if mode == "Off" or not roomy or first is None or (own is not None and own >= first):
        return ()
    fields = " and ".join(f"spec.{role}.replicas.initial" for role in roomy)
    problem = (
        f"engine {engine} tells its load from version {ENGINES[engine].measured_from} on, so nothing is decided: {fields}"
        " replicas are made and stay; name such an image (and spec.engine.version where its tag does not tell), or set it Off"
        " and scale with `kubectl scale` or another autoscaler"
    )
    return (Finding(Reason.VALID, "spec.autoscaling.mode", mode, problem, refused=False),)


def known_shape(model: ModelSpec) -> tuple[Shape, str | None] | None:
    """The shape of a model, and the format of its checkpoint where the name tells it ("none" for 16 bits)."""
    source = model.source
    entry = models.known(source.repository) if isinstance(source, HubSource) else None
    told = shape_of(model.shape or ModelShape(), entry[0].shape if entry else None)
    if told is None:
        return None
    return told, ((entry[1] or "none") if entry else None)


def sides(service: InferenceService, accelerators: Mapping[str, Accelerator | None]) -> dict[str, Side] | None:
    """Make the sides by role; None where the model's shape or a role's hardware is not known."""
    found = known_shape(service.spec.model)
    if found is None:
        return None
    made = {}
    for role in service.spec.roles:
        accelerator = accelerators.get(service.spec.accelerator_of(role))
        if accelerator is None:
            return None
        made[role] = side_of(service, role, accelerator, *found)
    return made


def side_of(service: InferenceService, role: str, accelerator: Accelerator, shape: Shape, stored: str | None) -> Side:
    """Make the side of one role; the role's own fields rule over the service's."""
    spec, own = service.spec, service.spec.roles[role]
    numbers, layout, batching = spec.quantization_of(role), spec.parallelism_of(role), spec.batching_of(role)
    eviction, speculation = spec.cache.eviction, spec.speculation
    kept = None
    if eviction.policy == "streaming":
        kept = (eviction.sink_tokens or SINK_TOKENS) + (eviction.window_tokens or 0)
    elif eviction.policy != "none":
        kept = eviction.budget_tokens
    draft = models.known(speculation.model) if speculation.method == "draft" and speculation.model else None
    simulated = spec.engine.name == "simulated"
    return Side(
        role=role,
        accelerator=accelerator.name,
        hardware=accelerator.spec,
        engine=spec.engine.name,
        version=_version(service),
        shape=shape,
        stored=stored,
        source=numbers.source or "Checkpoint",
        weights=numbers.weights or "auto",
        activations=numbers.activations or "auto",
        kv=numbers.kv_cache or "auto",
        attention=numbers.attention or "auto",
        layout=Layout(layout.tensor or 1, layout.pipeline or 1, layout.data or 1, bool(layout.expert)),
        context=spec.model.context_length,
        sequences=batching.max_sequences or 1,
        batch_tokens=batching.max_batch_tokens or 1,
        utilization=spec.engine.memory_utilization or DEFAULT_UTILIZATION,
        kept=kept,
        kv_tokens=None if simulated else spec.cache.kv_tokens,
        adapters=len(spec.model.adapters),
        rank=max((adapter.rank or 16 for adapter in spec.model.adapters), default=16),
        draft=draft[0].shape if draft else None,
        lossless=bool(numbers.lossless_compression),
        scaled=scaling.given(spec.engine.name, spec.engine.args),
        places=_places(service, role, own.accelerator is not None),
    )


def _version(service: InferenceService) -> versions.Version | None:
    """The engine's version: as written, as its image's tag says, or the operator's own where no other image is named."""
    engine = service.spec.engine
    if engine.version is not None or engine.image is not None:
        return versions.version(engine.version) or version_told(engine.name, engine.image)
    known = ENGINES.get(engine.name)
    return versions.version(known.version) if known is not None else None


def _places(service: InferenceService, role: str, own_accelerator: bool) -> dict[str, str]:
    """Where each setting was written: on the role, or on the service."""
    own = service.spec.roles[role]
    places = {
        "context": "spec.model.contextLength",
        "accelerator": f"spec.{role}.accelerator" if own_accelerator else "spec.accelerator",
        "utilization": "spec.engine.memoryUtilization",
        "kvTokens": "spec.cache.kvTokens",
        "network": "spec.transfer.network",
    }
    for setting, field in (("tensor", "tensor"), ("pipeline", "pipeline"), ("data", "data"), ("expert", "expert")):
        written = getattr(own.parallelism, field) is not None
        places[setting] = f"spec.{role}.parallelism.{setting}" if written else f"spec.parallelism.{setting}"
    numbers = (
        ("weights", "weights"),
        ("activations", "activations"),
        ("kvCache", "kv_cache"),
        ("attention", "attention"),
    )
    for setting, field in numbers:
        written = getattr(own.quantization, field) is not None
        places[setting] = f"spec.{role}.quantization.{setting}" if written else f"spec.quantization.{setting}"
    return places

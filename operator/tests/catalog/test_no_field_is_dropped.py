"""Every leaf of the spec, changed alone, on every engine: it is refused, or seen in what is made, or changes what is decided.

The table of abilities names settings; this goes by the schema of the CRD itself, so a field that somebody adds and nobody carries
out fails here (kserve/kserve#5773). A field that means something only in company is changed in that company. Where the company
itself is refused nothing can be seen of the field: those are listed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import pytest
from engine_bodies import BASES, Spec, rendered
from offline_admission import admit
from operator_bodies import KNOWN, SHAPE, SITE, merged, service, service_body
from scaled_world import ScaledWorld
from steelyard.api.crd import KINDS, schema
from steelyard.api.labels import POOL
from steelyard.api.status import RolloutStatus
from steelyard.api.structural import Schema
from steelyard.build.render import children
from steelyard.catalog.abilities import ENGINE_NAMES, ROLES
from steelyard.decide import replicas, rollout_pause
from steelyard.decide.accept import refusals
from steelyard.decide.feasibility.service import judged, known_shape
from steelyard.decide.rollout import Rollout
from steelyard.decide.rollout_pause import Judged
from steelyard.decide.scale.spec import scaled
from steelyard.decide.schedule import scheduled
from steelyard.observe.answers import Vector
from steelyard.observe.attainment import window_of
from steelyard.observe.prometheus import Query

AGGREGATED: Spec = {"topology": "Aggregated"}
RESOURCES: Spec = {"cpu": "3", "memory": "64Gi"}
FP8_LOADED: Spec = {"weights": "fp8", "source": "Load"}
JOB: Spec = {"weights": "fp8", "source": "Job", "job": {"claim": "models"}}
ROOM: Spec = {"prefill": {"replicas": {"max": 4}}, "decode": {"replicas": {"max": 4}}}
# Shapes of models, so whole that every layer is counted, with more weights than those of the layers.
DENSE: Spec = {
    **SHAPE,
    "parameters": 20_000_000_000,
    "headDimension": 128,
    "intermediateSize": 2048,
    "vocabulary": 128_256,
}
EXPERTS: Spec = {
    "experts": 8,
    "expertsPerToken": 3,
    "sharedExperts": 2,
    "expertIntermediateSize": 1024,
    "denseLayers": 2,
}
LATENT: Spec = {"kvRank": 512, "ropeDimension": 64}
WINDOWS: Spec = {"slidingWindow": 1024, "slidingLayers": 16}
STATES: Spec = {"stateLayers": 8, "stateBytes": 4096}

# Beginnings of fields, and what must stand beside them to have a meaning. The longest one that fits counts.
COMPANY: dict[str, Spec] = {
    "model.shape": {"model": {"shape": DENSE}},
    "model.shape.activeParameters": {"model": {"shape": {**SHAPE, "experts": 8, "expertsPerToken": 3}}},
    "model.shape.intermediateSize": {"model": {"shape": {**DENSE, "experts": 8, "expertsPerToken": 3}}},
    **{
        f"model.shape.{name}": {"model": {"shape": DENSE | part}}
        for part in (EXPERTS, LATENT, WINDOWS, STATES)
        for name in part
    },
    # A written number of weights holds whatever these are, as the rest of it.
    "model.shape.sharedExperts": {"model": {"shape": {**DENSE, **EXPERTS, "parameters": None}}},
    "replicas.initial": {"replicas": {"max": 4}},
    "autoscaling.standby": ROOM,
    "autoscaling.schedule": ROOM,
    "rollout.pauseOnObjectiveLoss": {"objectives": {"timeToFirstToken": "1s"}},
    "model.cache.claim": {"model": {"uri": "hf://org/model", "cache": {"kind": "claim", "claim": "models"}}},
    "model.cache.files": {"model": {"uri": "hf://org/model", "cache": {"kind": "claim", "claim": "models"}}},
    "model.cache.kind": {"model": {"uri": "hf://org/model"}},
    "quantization.job": {"quantization": JOB},
    "batching.maxWait": {"batching": {"strategy": "dynamic", "maxBatchTokens": 8192}},
    "cache.eviction.sinkTokens": {"cache": {"eviction": {"policy": "streaming", "windowTokens": 512}}},
    "cache.eviction.windowTokens": {"cache": {"eviction": {"policy": "streaming"}}},
    "cache.eviction.budgetTokens": {"cache": {"eviction": {"policy": "snapkv"}}},
    "cache.offload.memory": {"cache": {"offload": {"kind": "cpu"}}},
    "cache.offload.address": {"cache": {"offload": {"kind": "lmcache", "memory": "8Gi"}}},
    "speculation.tokens": {"speculation": {"method": "ngram"}},
    "speculation.promptLookup": {"speculation": {"method": "ngram"}},
    "speculation.model": {"speculation": {"method": "draft"}},
    "transfer.rdmaResource": {"transfer": {"network": "rdma"}},
}
# What a value needs that is not the field's own company.
NEEDS: dict[tuple[str, Any], Spec] = {
    ("model.cache.kind", "claim"): {"model": {"cache": {"claim": "models"}}},
    ("quantization.source", "Load"): {"quantization": {"weights": "fp8"}},
    ("quantization.source", "Job"): {"quantization": JOB},
    ("quantization.attention", "fp8"): {"quantization": {"kvCache": "fp8"}},
    ("batching.strategy", "dynamic"): {"batching": {"maxWait": "20ms"}},
    ("cache.eviction.policy", "streaming"): {"cache": {"eviction": {"windowTokens": 512}}},
    ("cache.offload.kind", "cpu"): {"cache": {"offload": {"memory": "8Gi"}}},
    ("cache.offload.kind", "lmcache"): {"cache": {"offload": {"memory": "8Gi"}}},
    ("cache.offload.kind", "mooncake"): {"cache": {"offload": {"memory": "8Gi", "address": "store:5000"}}},
    ("speculation.method", "draft"): {"speculation": {"model": "/models/small.gguf"}},
    ("speculation.method", "eagle3"): {"speculation": {"model": "org/head"}},
    ("transfer.connector", "lmcache"): {
        "cache": {"offload": {"kind": "lmcache", "memory": "8Gi", "address": "store:5000"}}
    },
}
# Values of fields that are free text, maps and lists; numbers and choices follow from the schema.
SAMPLES: dict[str, Any] = {
    "model.uri": "pvc://models/other/model.gguf",
    "model.adapters": [{"name": "legal", "uri": "pvc://adapters/legal"}],
    "model.cache.files": ["*.gguf"],
    "engine.version": "0.33.0",
    "engine.image": "mirror.internal/engine:9.9",
    "engine.args": ["--numerics", "fast"],
    "engine.env": [{"name": "COLOUR", "value": "red"}],
    "accelerator": "h100",
    "cache.offload.address": "store:5000",
    "speculation.model": "org/small",
    "transfer.rdmaResource": "rdma/other",
    "autoscaling.schedule": [{"cron": "0 8 * * 1-5", "duration": "1h", "decode": 2}],
    "template.spec.tolerations": [{"key": "gpu", "operator": "Exists"}],
    "template.spec.affinity": {"nodeAffinity": {}},
    "template.spec.topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
    ],
    "template.spec.imagePullSecrets": [{"name": "pull"}],
    "template.spec.volumes": [{"name": "extra", "emptyDir": {}}],
    "template.spec.containers": [{"name": "sidecar", "image": "side:1"}],
}
BY_NAME: dict[str, Any] = {
    "ratio.min": "1:3",
    "ratio.max": "3:1",
    "requests": RESOURCES,
    "limits": RESOURCES,
    "maxUnavailable": "50%",
    "maxSurge": "50%",
    "maxWait": "30ms",
    "requestTimeout": "90s",
    "timeToFirstToken": "700ms",
    "timePerOutputToken": "70ms",
    "window": "10m",
    "bodyBytes": "8Mi",
    "sharedMemory": "3Gi",
    "memory": "24Gi",
    "labels": {"team": "a"},
    "annotations": {"note": "a"},
    "nodeSelector": {"zone": "a"},
}
# Numbers that are valid beside the rest of the smallest spec.
NUMBERS: dict[str, list[Any]] = {
    "contextLength": [8192],
    "memoryUtilization": [0.8],
    "tensor": [2],
    "pipeline": [2],
    "data": [2],
    "maxSequences": [12],
    "maxBatchTokens": [16_384],
    "kvTokens": [131_072],
    "blockTokens": [32],
    "samples": [64],
    "windowTokens": [1024],
    "sinkTokens": [8],
    "max": [7],
    "replicas": [3],
}
# Fields that are decided with and reach no child.
PLANNED = (
    "model.shape",
    "objectives.attainment",
    "autoscaling",
    "replicas",
    "rollout.pauseOnObjectiveLoss",
)
# Of those, what engines are told too.
TOLD: dict[str, tuple[str, ...]] = {"autoscaling.roleChange": ("vllm",)}
# Fields that neither children nor decisions tell of; `test_the_window_is_what_attainment_is_counted_over` does.
ASKED = ("objectives.window",)
# Fields that others than the engine carry out: gateways, the operator, the cluster.
OTHERS = (
    "routing",
    "objectives",
    "rollout",
    "engine.prepull",
    "engine.version",  # what is known of an image; of flags only vLLM's differ by it
    "quantization.weights",  # a checkpoint's own form is a claim that planning counts with
    "quantization.activations",
    "quantization.job",
    "template.metadata",
)
# What an engine does anyway, so that a spec which says so changes nothing; "*": every engine.
ANYWAY: dict[str, tuple[str, ...]] = {
    "model.trustRemoteCode: False": ("*",),
    "model.shape.tiedEmbeddings: False": ("*",),
    "rollout.pauseOnObjectiveLoss: False": ("*",),
    "engine.prepull: False": ("*",),
    "parallelism.expert: False": ("*",),
    "quantization.weights: auto": ("*",),
    "quantization.activations: auto": ("*",),
    "quantization.kvCache: auto": ("*",),
    "quantization.attention: auto": ("*",),
    "quantization.source: Checkpoint": ("*",),
    "quantization.losslessCompression: False": ("*",),
    "batching.strategy: chunked": ("*",),
    "cache.events: False": ("*",),
    "routing.limits.shedWhenLate: False": ("*",),
    "quantization.kvCache: none": ("llama-cpp", "simulated"),
    "model.uri: pvc://models/other/model.gguf": ("simulated",),
    "cache.prefixReuse: True": ("llama-cpp", "simulated", "sglang"),
    "transfer.connector: http": ("llama-cpp", "simulated"),
    "transfer.connector: nixl": ("vllm",),
}

# Fields whose company these engines refuse, so that the field itself is never judged; "*": every engine.
REFUSED_COMPANY: dict[str, tuple[str, ...]] = {
    "model.shape.sharedExperts": ("simulated",),  # it needs a written number of weights
    "model.cache.claim": ("simulated",),
    "model.cache.files": ("simulated",),
    "quantization.job": ("llama-cpp", "simulated", "tensorrt-llm"),
    "cache.eviction.sinkTokens": ("vllm", "sglang", "tensorrt-llm"),
    "cache.eviction.windowTokens": ("vllm", "sglang", "tensorrt-llm"),
    "cache.eviction.budgetTokens": ("*",),
    "cache.offload.memory": ("llama-cpp", "simulated"),
    "cache.offload.address": ("llama-cpp", "simulated", "tensorrt-llm"),
}
MET = RolloutStatus(revision="chat-2", since=datetime(2026, 1, 5, tzinfo=UTC), objectives_were_met=True)
PEAK = datetime(2026, 1, 5, 8, 30, tzinfo=UTC).timestamp()  # a Monday, amidst the peak of SAMPLES


class Told(StrEnum):
    """What tells of a change of one field."""

    SEEN = "it changes what is made or decided"
    REFUSED = "it is refused"
    COMPANY = "its company is refused without it already"
    NOTHING = "nothing"


def leaves(node: Schema, name: str = "") -> Iterator[tuple[str, Schema]]:
    """Every field of a block that has no fields of its own, with its schema."""
    for key, child in node.get("properties", {}).items():
        below = f"{name}.{key}".lstrip(".")
        if "properties" in child:
            yield from leaves(child, below)
        else:
            yield below, child


SPEC: Schema = schema(next(kind for kind in KINDS if kind.name == "InferenceService"))["properties"]["spec"]
LEAVES = list(leaves(SPEC))


def values(name: str, node: Schema) -> list[Any]:
    """What a field is changed to: every other choice, or one other number or text."""
    last = name.rpartition(".")[2]
    if name in SAMPLES:
        return [SAMPLES[name]]
    for known, value in BY_NAME.items():
        if name == known or name.endswith(f".{known}"):
            return [value]
    if last in NUMBERS and node.get("type") in ("integer", "number"):
        return NUMBERS[last]
    if "enum" in node:
        return [value for value in node["enum"] if value != node.get("default")]
    match node.get("type"):
        case "boolean":
            return [True, False]
        case "integer" | "number":
            return [int(node.get("default") or node.get("minimum") or 0) + 1]
        case "string":
            return ["other"]
    raise AssertionError(f"say what spec.{name} is to be changed to")


def placed(name: str, value: Any) -> Spec:
    """A spec that holds one field."""
    for part in reversed(name.split(".")):
        value = {part: value}
    return dict(value)


def company(name: str) -> Spec:
    """What must stand beside a field."""
    fitting = [known for known in COMPANY if name == known or name.startswith(f"{known}.")]
    return COMPANY[max(fitting, key=len)] if fitting else {}


def moved(spec: Spec, role: str) -> Spec:
    """The same for one role, as far as roles have those blocks."""
    of_roles = set(SPEC["properties"]["decode"]["properties"])
    own = {key: value for key, value in spec.items() if key in of_roles}
    rest = {key: value for key, value in spec.items() if key not in of_roles}
    return {**rest, role: own} if own else rest


def in_topology(spec: Spec, base: Spec) -> Spec:
    """The same for a service of one role: what is said of decode is said of it."""
    if base.get("topology") != "Aggregated" or "decode" not in spec:
        return spec
    rest = {key: value for key, value in spec.items() if key not in ROLES}
    return {**rest, "aggregated": spec["decode"]}


def told(base: Spec, changed: Spec, name: str, engine: str) -> Told:
    """What tells of a change: a refusal that was not there before, by the operator or at admission, or a look where it belongs."""
    before, after = refused(base), refused(changed)
    if after - before:
        return Told.REFUSED
    if after:
        return Told.COMPANY
    looks = [decisions if begins(name, PLANNED) else rendered if begins(name, OTHERS) else engines]
    looks += [engines] if engine in TOLD.get(name, ()) else []
    if all(look(changed) != look(base) for look in looks):
        return Told.SEEN
    return Told.REFUSED if set(admit(service_body(changed))) - set(admit(service_body(base))) else Told.NOTHING


def refused(spec: Spec) -> set[str]:
    """Why the operator refuses a spec."""
    return set(map(str, refusals(service(spec), KNOWN)))


def decisions(spec: Spec) -> str:
    """What is decided from a spec, as text: what the law is given, now and in a peak, the first numbers, what fits, and whether
    a rollout waits in which half of the requests miss their objectives. A model's shape is seen as planning takes it:
    what follows from it differs by engine, and nothing does for llama-cpp, whose times are those of a processor."""
    of = service(spec)
    progress = rollout_pause.progress(of, "chat-2", Rollout({}, {}, {}), MET, Judged(50, 100, PEAK), PEAK)
    return repr(
        (
            scaled(of, KNOWN),
            scaled(scheduled(of, PEAK), KNOWN).limits,
            replicas.scales(of, {}),
            judged(of, KNOWN),
            known_shape(of.spec.model),
            progress,
        )
    )


def engines(spec: Spec) -> str:
    """The engines' workloads and files as text, without labels and annotations: what an engine itself could notice."""
    found = []
    for child in children(service(spec), KNOWN, SITE):
        if POOL in child["metadata"]["labels"] and child["kind"] in ("Deployment", "LeaderWorkerSet"):
            found.append(child["spec"])
        elif child["kind"] == "ConfigMap" and "gateway.json" not in child["data"]:
            found.append(child["data"])
    return repr(bare(found))


def bare(value: Any) -> Any:
    """Without what only others read."""
    if isinstance(value, dict):
        return {key: bare(inner) for key, inner in value.items() if key not in ("labels", "annotations")}
    return [bare(inner) for inner in value] if isinstance(value, list) else value


def begins(name: str, known: Iterable[str]) -> bool:
    """Whether a field is one of those, or within one."""
    return any(name == one or name.startswith(f"{one}.") for one in known)


def found(engine: str, base: Spec, block: str) -> Iterator[tuple[str, Any, Told]]:
    """Every change of the service's own fields (block "") or one role's, with what tells of it."""
    for path, node in LEAVES:
        first, _, rest = path.partition(".")
        if (first if first in ROLES else "") != block or path in ("topology", "engine.name"):
            continue
        name = rest if block else path
        beside = moved(company(name), block) if block else in_topology(company(name), base)
        for value in values(name, node):
            before = merged(base, beside)
            extra = NEEDS.get((name, value), {}) if isinstance(value, str) else {}
            after = merged(merged(before, moved(extra, block) if block else extra), placed(path, value))
            if begins(name, ASKED) or not {"*", engine}.isdisjoint(ANYWAY.get(f"{name}: {value}", ())):
                continue
            yield name, value, told(before, after, name, engine)


@pytest.mark.parametrize("block", ["", *ROLES])
@pytest.mark.parametrize("engine", ENGINE_NAMES)
def test_a_field_is_refused_or_seen(engine: str, block: str) -> None:
    base = BASES[engine]
    whole = base.get("topology") == "Aggregated"
    if block in ("prefill", "decode") and whole:
        return  # the engine has one role: the whole block is refused at admission
    if block == "aggregated" and not whole:
        base = merged(base, AGGREGATED)
    changes = list(found(engine, base, block))
    assert [f"{name}: {value}" for name, value, what in changes if what is Told.NOTHING] == []
    unjudged = [one for one, those in REFUSED_COMPANY.items() if not {"*", engine}.isdisjoint(those)]
    names = {name for name, _, _ in changes if begins(name, unjudged)}
    assert {name for name, _, what in changes if what is Told.COMPANY} == names


def test_the_window_is_what_attainment_is_counted_over() -> None:
    """Seen in what Prometheus is asked for."""
    usual, longer = asked({}), asked({"objectives": {"window": BY_NAME["window"]}})
    span = f"[{window_of(600)}s]"
    assert any(span in text for text in longer - usual)


def asked(spec: Spec) -> set[str]:
    """The queries of two ticks of a service that scales."""
    texts: set[str] = set()

    class Asked(ScaledWorld):
        def ask(self, query: Query) -> Vector:
            texts.add(query.text)
            return super().ask(query)

    Asked(spec).tick(2)
    return texts


def test_what_engines_do_anyway_is_about_fields_that_exist() -> None:
    names = {re.sub(rf"^({'|'.join(ROLES)})\.", "", name) for name, _ in LEAVES}
    assert {entry.partition(":")[0] for entry in ANYWAY} <= names

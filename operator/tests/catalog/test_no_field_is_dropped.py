"""Every leaf of the spec, changed alone, on every engine: it is refused by name, or seen in what is made, or planned with.

The table of abilities names settings; this goes by the schema of the CRD itself, so a field that somebody adds and nobody carries
out fails here (kserve/kserve#5773). A field that means something only in company is changed in that company.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_bodies import BASES, Spec, rendered
from offline_admission import admit
from operator_bodies import KNOWN, SITE, merged, service, service_body
from pydantic import ValidationError
from steelyard.api.crd import KINDS, schema
from steelyard.api.labels import POOL
from steelyard.api.structural import Schema
from steelyard.build.render import children
from steelyard.catalog.abilities import ENGINE_NAMES, ROLES
from steelyard.decide.accept import refusals

SOURCE = Path(__file__).parents[2] / "src" / "steelyard"
AGGREGATED: Spec = {"topology": "Aggregated"}
RESOURCES: Spec = {"cpu": "3", "memory": "64Gi"}
FP8_LOADED: Spec = {"weights": "fp8", "source": "Load"}
JOB: Spec = {"weights": "fp8", "source": "Job", "job": {"claim": "models"}}

# Beginnings of fields, and what must stand beside them to have a meaning. The longest one that fits counts.
COMPANY: dict[str, Spec] = {
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
    "autoscaling.schedule": [{"cron": "0 8 * * 1-5", "duration": "1h", "decode": 1}],
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
# Fields that are planned with and reach no child, with the attribute that is read and the part of the operator that reads it.
PLANNED: dict[str, tuple[str, str]] = {
    "model.shape": ("shape", "decide/feasibility"),
    "objectives.attainment": ("attainment", "decide/rollout_pause.py"),
    "objectives.window": ("window", "observe/attainment.py"),
    "autoscaling.mode": ("mode", "run"),
    "autoscaling.budget.accelerators": ("accelerators", "decide/scale"),
    "autoscaling.budget.costPerHour": ("cost_per_hour", "decide/scale"),
    "autoscaling.ratio": ("ratio", "decide/scale"),
    "autoscaling.roleChange": ("role_change", "decide/scale"),
    "autoscaling.standby": ("standby", "decide/scale"),
    "autoscaling.schedule": ("schedule", "decide/schedule.py"),
    "replicas": ("replicas", "decide/replicas.py"),
    "rollout.pauseOnObjectiveLoss": ("pause_on_objective_loss", "decide/rollout_pause.py"),
}
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


def noticed(base: Spec, changed: Spec, name: str) -> bool:
    """Whether a change is refused, by the operator or at admission, or can be seen where it belongs."""
    try:
        after = service(changed)
    except ValidationError:
        return True
    if refusals(after, KNOWN):
        return True  # by this field, or by the company that it keeps
    look = rendered if begins(name, OTHERS) else engines
    return look(changed) != look(base) or bool(admit(service_body(changed)))


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


def dropped(engine: str, base: Spec, block: str) -> list[str]:
    """The changes that nothing tells of, in the service's own fields (block "") or one role's."""
    found = []
    for path, node in LEAVES:
        first, _, rest = path.partition(".")
        if (first if first in ROLES else "") != block or path in ("topology", "engine.name"):
            continue
        name = rest if block else path
        beside = moved(company(name), block) if block else company(name)
        for value in values(name, node):
            before = merged(base, beside)
            extra = NEEDS.get((name, value), {}) if isinstance(value, str) else {}
            after = merged(merged(before, moved(extra, block) if block else extra), placed(path, value))
            if begins(name, PLANNED) or not {"*", engine}.isdisjoint(ANYWAY.get(f"{name}: {value}", ())):
                continue
            if not noticed(before, after, name):
                found.append(f"spec.{path}: {value}")
    return found


@pytest.mark.parametrize("block", ["", *ROLES])
@pytest.mark.parametrize("engine", ENGINE_NAMES)
def test_a_field_is_refused_or_seen(engine: str, block: str) -> None:
    base = BASES[engine]
    whole = base.get("topology") == "Aggregated"
    if block in ("prefill", "decode") and whole:
        return  # the engine has one role: the whole block is refused at admission
    if block == "aggregated" and not whole:
        base = merged(base, AGGREGATED)
    assert dropped(engine, base, block) == []


@pytest.mark.parametrize(("field", "reader"), PLANNED.items(), ids=str)
def test_a_field_that_is_planned_with_is_there_and_read(field: str, reader: tuple[str, str]) -> None:
    """The children do not tell, so the part that acts on it must name it."""
    assert any(name == field or f".{name}.".find(f".{field}.") >= 0 for name, _ in LEAVES)
    attribute, place = reader
    at = SOURCE / place
    texts = [path.read_text() for path in (at.rglob("*.py") if at.is_dir() else [at])]
    assert any(re.search(rf"\b{attribute}\b", text) for text in texts)


def test_what_engines_do_anyway_is_about_fields_that_exist() -> None:
    names = {re.sub(rf"^({'|'.join(ROLES)})\.", "", name) for name, _ in LEAVES}
    assert {entry.partition(":")[0] for entry in ANYWAY} <= names

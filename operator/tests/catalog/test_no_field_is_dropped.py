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
from field_samples import AGGREGATED, BY_NAME, COMPANY, NEEDS, NUMBERS, SAMPLES
from offline_admission import admit
from operator_bodies import KNOWN, SITE, merged, service, service_body
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

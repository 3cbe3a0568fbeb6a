"""The chosen plan as a ready InferenceService, or laid over the one that was planned.

Laid over means: what a plan decides replaces what was written, and all else of the user's stays. A plan decides formats,
layouts, accelerators and numbers; it does not decide resources, templates, batching, or how far autoscaling may go.
"""

from collections.abc import Mapping
from typing import Any

import yaml

from steelyard.cli.plan_allowed import PLANNED, facts_of
from steelyard.cli.plan_question import Planned
from steelyard.decide.feasibility.findings import milliseconds
from steelyard.decide.goodput.candidates import Replica
from steelyard.sim.rehearsal import Rehearsed

GROWTH = 2  # a role's maximum, over its planned number
PLANNED_FORMATS = ("weights", "source", "kvCache")  # of a block `quantization`
PLANNED_OF_ROLE = ("replicas", "accelerator", "parallelism", "quantization")
METADATA = ("labels", "annotations")  # the user's own; the rest is the API server's


def manifest(question: Planned, found: Rehearsed) -> str:
    """Write the object, with a comment that says what was planned for."""
    load, goal = question.question.load, question.question.goal
    head = (
        f"# Planned for {load.rate:g} requests/s of {load.lengths.prompt:.0f} + {load.lengths.answer:.0f} tokens on "
        f"{found.option.accelerators} accelerators; {found.both:.1%} met the objectives in play.\n"
        "# Replicas start at the planned number and follow the load between min and max.\n"
    )
    side = found.option.decode.side
    if question.stored is not None and side.format != question.stored and side.source == "Checkpoint":
        head += f"# The weights are to be in {side.format}: name a checkpoint in that format.\n"
    written = question.service.spec if question.service is not None else None
    if found.option.aggregated and written is not None and written.prefill and written.decode:
        head += "# The blocks of prefill and decode are joined; where both set a field, decode's stands.\n"
    head += "".join(f"# {note}\n" for note in question.question.notes)
    body = _body(question, found, goal.attainment * 100)
    return head + yaml.safe_dump(body, sort_keys=False, width=120)


def _body(question: Planned, found: Rehearsed, percent: float) -> dict[str, Any]:
    option, targets = found.option, question.question.goal.targets
    replica = option.decode
    spec: dict[str, Any] = {
        "model": {"uri": question.uri, "contextLength": replica.side.context},
        "engine": {"name": replica.side.engine},
        "topology": "Aggregated" if option.aggregated else "Disaggregated",
        "accelerator": replica.side.accelerator,
    }
    written = _filled(question.written.get("spec"))
    if written:
        spec = {
            block: {**written.get(block, {}), **own} if isinstance(own, dict) else own for block, own in spec.items()
        }
        spec = {**_without(written, PLANNED), **spec}
    if replica.side.engine == "simulated" and "shape" not in spec["model"]:
        spec["model"]["shape"] = facts_of(question.shape)
    # An engine that makes the weights while it loads chooses the activations by them; any that are written are refused.
    decided = (*PLANNED_FORMATS, "activations") if replica.side.source == "Load" else PLANNED_FORMATS
    formats = _without(written.get("quantization"), decided)
    if replica.side.format != (question.stored or "none"):
        formats |= {"weights": replica.side.format, "source": replica.side.source}
    if replica.side.kv != "auto":
        formats["kvCache"] = replica.side.kv
    if formats:
        spec["quantization"] = formats
    names = ("aggregated",) if option.aggregated else ("prefill", "decode")
    for name, (count, one) in zip(names, option.pools, strict=True):
        spec[name] = {**_role(count, one, replica.side.accelerator), **_kept_of_role(written, name, decided)}
    objectives = {"timeToFirstToken": targets.ttft, "timePerOutputToken": targets.tpot}
    spec["objectives"] = dict(written.get("objectives", {}))
    spec["objectives"] |= {name: milliseconds(value) for name, value in objectives.items() if value is not None}
    spec["objectives"]["attainment"] = float(f"{percent:g}")
    most = max(option.accelerators, question.question.most or GROWTH * option.accelerators)
    scaling = written.get("autoscaling", {})
    spec["autoscaling"] = {**scaling, "budget": {**scaling.get("budget", {}), "accelerators": most}}
    kind = {"apiVersion": "serving.steelyard.dev/v1alpha1", "kind": "InferenceService"}
    if question.service is not None:
        meta: dict[str, Any] = {"name": question.service.name, "namespace": question.service.namespace}
        own = _filled(question.written.get("metadata"))
        meta |= {name: own[name] for name in METADATA if own.get(name)}
    else:
        meta = {"name": _name(question.model)}
    return {**kind, "metadata": meta, "spec": spec}


def _role(count: int, replica: Replica, accelerator: str) -> dict[str, Any]:
    layout = replica.side.layout
    made: dict[str, Any] = {"replicas": {"min": 1, "max": GROWTH * count, "initial": count}}
    ways: dict[str, Any] = {"tensor": layout.tensor, "pipeline": layout.pipeline, "data": layout.data}
    written = {name: value for name, value in ways.items() if value > 1}
    if layout.expert:
        written["expert"] = True
    if written:
        made["parallelism"] = written
    if replica.side.accelerator != accelerator:
        made["accelerator"] = replica.side.accelerator
    return made


def _kept_of_role(written: Mapping[str, Any], name: str, decided: tuple[str, ...]) -> dict[str, Any]:
    """What the user wrote of a role and no plan decides; where the topology changes, what was written of the other one's."""
    others = ("prefill", "decode") if name == "aggregated" else ("aggregated",)
    block = {field: value for role in (*others, name) for field, value in (written.get(role) or {}).items()}
    formats = _without(block.get("quantization"), decided)
    return _without(block, PLANNED_OF_ROLE) | ({"quantization": formats} if formats else {})


def _filled(block: Mapping[str, Any] | None) -> dict[str, Any]:
    """A block without fields that are written as null, which is as if they were not there."""
    return {name: value for name, value in (block or {}).items() if value is not None}


def _without(block: Mapping[str, Any] | None, fields: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in (block or {}).items() if name not in fields}


def _name(model: str) -> str:
    """A name that Kubernetes takes."""
    stem = model.split("/")[-1].lower()
    kept = "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in stem).strip("-")
    return (kept if kept[:1].isalpha() else f"model-{kept}")[:50].strip("-") or "model"

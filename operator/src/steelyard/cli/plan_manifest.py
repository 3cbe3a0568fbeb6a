"""The chosen plan as a ready InferenceService, or laid over the one that was planned."""

from typing import Any

import yaml

from steelyard.cli.plan_question import Planned
from steelyard.decide.feasibility.findings import milliseconds
from steelyard.decide.goodput.candidates import Replica
from steelyard.sim.rehearsal import Rehearsed

GROWTH = 2  # a role's maximum, over its planned number


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
    if question.service is not None:
        written = question.service.spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
        spec = {
            block: {**written.get(block, {}), **own} if isinstance(own, dict) else own for block, own in spec.items()
        }
        spec = {**written, **spec}
        for block in ("prefill", "decode", "aggregated", "parallelism", "quantization", "autoscaling"):
            spec.pop(block, None)
    if replica.side.format != (question.stored or "none"):
        spec["quantization"] = {"weights": replica.side.format, "source": replica.side.source}
    if replica.side.kv != "auto":
        spec.setdefault("quantization", {})["kvCache"] = replica.side.kv
    names = ("aggregated",) if option.aggregated else ("prefill", "decode")
    for name, (count, one) in zip(names, option.pools, strict=True):
        spec[name] = _role(count, one, replica.side.accelerator)
    objectives = {"timeToFirstToken": targets.ttft, "timePerOutputToken": targets.tpot}
    spec["objectives"] = {name: milliseconds(value) for name, value in objectives.items() if value is not None}
    spec["objectives"]["attainment"] = float(f"{percent:g}")
    most = max(option.accelerators, question.question.most or GROWTH * option.accelerators)
    spec["autoscaling"] = {"budget": {"accelerators": most}}
    kind = {"apiVersion": "serving.steelyard.dev/v1alpha1", "kind": "InferenceService"}
    if question.service is not None:
        meta: dict[str, Any] = {"name": question.service.name, "namespace": question.service.namespace}
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


def _name(model: str) -> str:
    """A name that Kubernetes takes."""
    stem = model.split("/")[-1].lower()
    kept = "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in stem).strip("-")
    return (kept if kept[:1].isalpha() else f"model-{kept}")[:50].strip("-") or "model"

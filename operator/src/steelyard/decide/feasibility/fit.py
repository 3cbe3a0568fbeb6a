"""Does it fit? One sequence of full length beside the weights, or what was asked for; and what the nearest setting is.

An engine that cannot hold one sequence of the full context ends at its start, so that is refused. That fewer than
`maxSequences` fit at once is no fault: they wait, and `status.memory` says how many there are.
"""

from collections.abc import Iterator
from dataclasses import replace

from steelyard.api.reasons import Reason
from steelyard.catalog import formats, kernels
from steelyard.decide.feasibility import scaling
from steelyard.decide.feasibility.findings import Finding, gigabytes, listed
from steelyard.decide.feasibility.inputs import COMPUTES_NOTHING, Side
from steelyard.decide.feasibility.memory import Memory, memory
from steelyard.decide.feasibility.spread import ways

NARROWER = ("fp8", "int4-awq", "nvfp4")  # tried in this order where weights are too large
USEFUL_CONTEXT = 1024  # a shorter one is no remedy


def fits(side: Side) -> Iterator[Finding]:
    """Refuse what cannot start; an engine that computes nothing is told instead."""
    positions, computes = side.shape.context, side.engine != COMPUTES_NOTHING
    if positions is not None and side.context > positions and side.kept is None and computes and not side.scaled:
        problem = f"the model was made for {positions} positions, and engines refuse more without a scaling of its own"
        problem += f"; lower it to at most {positions}" + scaling.remedy(side.engine, side.context)
        yield Finding(Reason.INVALID_SPEC, side.place("context"), str(side.context), problem, refused=False)
    counted = memory(side)
    if counted is None:
        return
    refused, real = computes, "" if computes else "the real engine would not start: "
    told = f"an accelerator {side.accelerator} gives {gigabytes(counted.available)}"
    told += f" ({side.hardware.memory} × {side.utilization:g})"
    if counted.left < counted.sequence(side.context):
        needed = f"{real}one accelerator needs {_parts(counted)} and {gigabytes(counted.sequence(side.context))} of KV for one"
        needed += f" sequence of {side.context} tokens, {told}"
        setting, value = ("context", side.context) if counted.left > 0 else ("tensor", side.layout.tensor)
        yield Finding(
            Reason.DOES_NOT_FIT, side.place(setting), str(value), f"{needed}; {_remedy(side, counted)}", refused
        )
    elif side.kv_tokens is not None and counted.tokens(side.context) < side.kv_tokens and refused:
        most = counted.tokens(side.context)
        problem = (
            f"{_parts(counted)} leave {gigabytes(counted.left)} of an accelerator for KV, {told}; at most {most} fit"
        )
        yield Finding(Reason.DOES_NOT_FIT, side.place("kvTokens"), str(side.kv_tokens), problem)


def _parts(counted: Memory) -> str:
    parts = {"weights": counted.weights, "adapters": counted.adapters, "the draft model": counted.draft,
             "activations and workspace": counted.activations + counted.workspace}  # fmt: skip
    return ", ".join(f"{gigabytes(size)} of {name}" for name, size in parts.items() if size)


def _remedy(side: Side, counted: Memory) -> str:
    """Name settings that would fit, the least change first."""
    found = []
    longest = counted.longest(side.context)
    if longest >= USEFUL_CONTEXT:
        found.append(f"set {side.place('context')} to at most {longest // 16 * 16}")
    wider = widened(side)
    if wider is not None:
        found.append(f"set {side.place('tensor')} to {wider.layout.tensor}")
    formats_ = [name for name in NARROWER if _narrowed_fits(side, name)]
    if formats_:
        found.append(f"use weights in {listed(formats_)}")
    if side.kv_format == "none" and counted.left > 0 and holds(replace(side, kv="fp8")):
        found.append(f"set {side.place('kvCache')} to fp8")
    deeper = deepened(side) if wider is None and longest < USEFUL_CONTEXT else None
    if deeper is not None:
        found.append(
            f"set {side.place('pipeline')} to {deeper.layout.pipeline} and {side.place('tensor')} to {deeper.layout.tensor}"
        )
    return " or ".join(found) or "no number of these accelerators holds it; use larger ones"


def holds(side: Side) -> bool:
    """Whether one sequence of full length fits."""
    counted = memory(side)
    return counted is not None and counted.left >= counted.sequence(side.context)


def widened(side: Side) -> Side | None:
    """The same with the fewest tensor ways with which it fits inside one node; None where none does."""
    for tensor in ways(side.shape, side.hardware.per_node):
        other = replace(side, layout=replace(side.layout, tensor=tensor))
        if tensor > side.layout.tensor and other.layout.accelerators <= side.hardware.per_node and holds(other):
            return other
    return None


def deepened(side: Side) -> Side | None:
    """The same over several nodes: as many tensor ways as one has, and the fewest pipeline stages that fit."""
    tensor = max(ways(side.shape, side.hardware.per_node), default=1)
    for stages in (2, 3, 4, 6, 8, 12, 16):
        other = replace(side, layout=replace(side.layout, tensor=tensor, pipeline=stages))
        whole = other.layout.accelerators % side.hardware.per_node == 0
        if whole and stages <= side.shape.layers and holds(other):
            return other
    return None


def _narrowed_fits(side: Side, name: str) -> bool:
    other = replace(side, weights=name, stored=None, activations="auto")
    if formats.WEIGHTS[name].width(side.shape.hidden) >= formats.WEIGHTS[side.format].width(side.shape.hidden):
        return False
    found = kernels.find(other.asked)
    return found is not None and found.verdict != "refused" and holds(other)

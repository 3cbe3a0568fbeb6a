"""May a replica be spread like this? Heads and experts divide, stages have layers, and links reach.

Every rule that is broken is told at once: an engine stops at its first assertion, which may hide the true reason. That nodes
are filled whole needs no model: `accept.py` sees to it.
"""

from collections.abc import Iterator

from steelyard.api.reasons import Reason
from steelyard.catalog.shapes import Kind, Shape
from steelyard.decide.feasibility.findings import Finding, listed
from steelyard.decide.feasibility.inputs import Side

FP8_BLOCK = 128  # of checkpoints that are quantized in blocks


def ways(shape: Shape, most: int) -> list[int]:
    """Tensor-parallel ways up to `most` that divide the heads, and the KV heads or their copies."""
    return [n for n in range(1, most + 1) if not _indivisible(shape, n)]


def spreads(side: Side) -> Iterator[Finding]:
    """Go through all rules."""
    layout, shape = side.layout, side.shape
    tensor = layout.tensor
    refuse = Reason.PARALLELISM_INVALID
    possible = ways(shape, max(tensor, side.hardware.per_node))
    if broken := _indivisible(shape, tensor):
        problem = f"it must divide {' and '.join(broken)}; nearest: {listed(_nearest(possible, tensor))}"
        yield Finding(refuse, side.place("tensor"), str(tensor), problem)
    if layout.pipeline > shape.layers:
        problem = f"each stage needs a layer, and the model has {shape.layers}; set it to at most {shape.layers}"
        yield Finding(refuse, side.place("pipeline"), str(layout.pipeline), problem)
    yield from _experts(side)
    yield from _nodes(side)


def _indivisible(shape: Shape, tensor: int) -> list[str]:
    """Name what a number of tensor ways does not divide."""
    found = [f"the {heads} attention heads" for heads in shape.heads if heads % tensor]
    for group in shape.attention:
        if group.kind is Kind.LATENT:
            continue
        if group.kind is Kind.LINEAR and group.kv_heads % tensor:
            found.append(f"the {group.kv_heads} key heads of linear layers")
        elif group.kind is not Kind.LINEAR and (
            group.kv_heads % tensor if tensor <= group.kv_heads else tensor % group.kv_heads
        ):
            found.append(f"the {group.kv_heads} KV heads (or be a multiple of them)")
    return list(dict.fromkeys(found))


def _nearest(possible: list[int], wanted: int) -> list[int]:
    below = [n for n in possible if n < wanted][-1:]
    return below + [n for n in possible if n > wanted][:1]


def _experts(side: Side) -> Iterator[Finding]:
    layout, experts = side.layout, side.shape.experts
    if layout.expert and experts is None:
        problem = "the model has no experts; set it to false"
        yield Finding(Reason.PARALLELISM_INVALID, side.place("expert"), "true", problem)
    elif layout.expert and experts is not None and experts.count % layout.stage:
        possible = [n for n in range(1, 2 * layout.stage) if experts.count % n == 0]
        problem = (
            f"its {layout.stage} accelerators a stage (tensor × data) must divide the {experts.count} experts; "
            f"nearest: {listed(_nearest(possible, layout.stage))}"
        )
        yield Finding(Reason.PARALLELISM_INVALID, side.place("expert"), "true", problem)
    elif experts is not None and not layout.expert and layout.stage > 1:
        width = experts.weights // (3 * side.shape.hidden)
        cut = width / layout.stage
        if cut % 1 or (side.format == "fp8" and side.stored == "fp8" and cut % FP8_BLOCK):
            rest = f"blocks of {FP8_BLOCK}" if not cut % 1 else "whole columns"
            problem = (
                f"it cuts experts of width {width} into pieces of {cut:g}, which are not {rest}; "
                f"some engines refuse that at their start: set {side.place('expert')} to true, or use fewer ways"
            )
            yield Finding(Reason.PARALLELISM_INVALID, side.place("tensor"), str(layout.tensor), problem, refused=False)


def _nodes(side: Side) -> Iterator[Finding]:
    layout, node = side.layout, side.hardware.per_node
    whole = layout.accelerators
    if "/mig-" in (side.hardware.resource or "") and whole > 1:
        problem = f"slices of a GPU have no link to each other, and this replica needs {whole}; use 1, or whole GPUs"
        yield Finding(Reason.PARALLELISM_INVALID, side.place("tensor"), str(layout.tensor), problem)
        return
    if whole <= node:
        return
    links = side.hardware.interconnect
    if layout.tensor > max(node, links.domain if links else 1):
        problem = (
            f"all-reduces of every layer go over the network between {-(-layout.tensor // node)} nodes of {node}; "
            f"{node} with {side.place('pipeline')} {-(-layout.tensor // node)} is usually faster"
        )
        yield Finding(Reason.PARALLELISM_INVALID, side.place("tensor"), str(layout.tensor), problem, refused=False)

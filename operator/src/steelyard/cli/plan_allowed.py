"""Which topologies a plan may look at: those that the operator's own checks let the engine, formats and hardware have.

The checks are asked with a service like the one that would be written, before anything is computed. Layouts and numbers of
replicas are left out of it: they are what is planned.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from steelyard.api.accelerator import Accelerator
from steelyard.api.reasons import Reason
from steelyard.catalog.shapes import Shape
from steelyard.cli.refusing import Refused
from steelyard.decide import accept
from steelyard.decide.abilities import LOADABLE
from steelyard.decide.feasibility.judge import Judgement
from steelyard.decide.installation import without_image
from steelyard.decide.plan import read
from steelyard.sim.planner import TOPOLOGIES

PLANNED = ("parallelism", "quantization", "prefill", "decode", "aggregated")  # blocks that a plan puts together anew


@dataclass(frozen=True, slots=True)
class Wish:
    """What a plan is asked for, as far as the operator may refuse it. `written` is the user's own spec, empty without one."""

    engine: str
    uri: str
    context: int
    shape: Shape
    accelerators: tuple[str, ...]
    formats: tuple[str, ...]
    kv: str | None
    written: Mapping[str, Any]


def allowed(wish: Wish, known: Mapping[str, Accelerator | None]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Give the topologies that the operator takes, and notes that say why not the others and what is still to be named.

    Raises `Refused` with the operator's reasons where it takes none.
    """
    reasons = {topology: _reasons(wish, topology, known) for topology in TOPOLOGIES}
    taken = tuple(topology for topology in TOPOLOGIES if not reasons[topology])
    if not taken:
        raise Refused("\n".join(reasons[TOPOLOGIES[-1]]))
    notes = [f"{topology} is not planned: {why}" for topology in TOPOLOGIES for why in reasons[topology]]
    for accelerator in wish.accelerators:
        service, _ = read(_body(wish, taken[0], accelerator, None))
        notes += map(str, without_image(service, {}, known)) if service is not None else ()
    return taken, tuple(dict.fromkeys(notes))


def _reasons(wish: Wish, topology: str, known: Mapping[str, Accelerator | None]) -> list[str]:
    found: dict[str, None] = {}
    for body in _bodies(wish, topology):
        service, problems = read(body)
        if service is not None:
            problems = accept.refusals(service, known, Judgement())
        # What is announced may be planned with; no pods are made for it.
        found |= {str(one): None for one in problems if one.reason != Reason.ACCELERATOR_NOT_AVAILABLE}
    return list(found)


def _bodies(wish: Wish, topology: str) -> Iterator[dict[str, Any]]:
    for accelerator in wish.accelerators:
        for form in wish.formats or (None,):
            yield _body(wish, topology, accelerator, form)


def _body(wish: Wish, topology: str, accelerator: str, form: str | None) -> dict[str, Any]:
    spec = {name: block for name, block in wish.written.items() if name not in PLANNED and block is not None}
    spec["model"] = {**spec.get("model", {}), "uri": wish.uri, "contextLength": wish.context}
    spec["engine"] = {**spec.get("engine", {}), "name": wish.engine}
    if wish.engine == "simulated" and "shape" not in spec["model"]:
        spec["model"]["shape"] = facts_of(wish.shape)
    formats: dict[str, Any] = {} if wish.kv is None else {"kvCache": wish.kv}
    if form is not None:
        formats |= {"weights": form, "source": "Load" if form in LOADABLE.get(wish.engine, ()) else "Checkpoint"}
    if formats:
        spec["quantization"] = formats
    spec |= {"topology": topology, "accelerator": accelerator}
    kind = {"apiVersion": "serving.steelyard.dev/v1alpha1", "kind": "InferenceService"}
    return {**kind, "metadata": {"name": "planned"}, "spec": spec}


def facts_of(shape: Shape) -> dict[str, Any]:
    """The facts of `spec.model.shape` by which the simulated engine keeps its time."""
    first = shape.attention[0]
    facts: dict[str, Any] = {"parameters": shape.parameters, "layers": shape.layers, "hiddenSize": shape.hidden}
    facts |= {"attentionHeads": first.heads, "kvHeads": first.kv_heads, "headDimension": first.key}
    facts |= {"vocabulary": shape.vocabulary, "tiedEmbeddings": shape.tied}
    if shape.experts is not None:
        experts = shape.experts
        facts |= {"experts": experts.count, "expertsPerToken": experts.active, "activeParameters": shape.active}
    return facts

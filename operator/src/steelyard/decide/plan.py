"""Snapshot → Plan: what one reconcile shall do, decided in one place and without touching anything.

Ordered rules, the first that holds decides:

1. Paused (annotation `paused: "true"`): change nothing, report what is seen.
2. Refused (unreadable or not acceptable): keep the children in force, repair their drift, create nothing new, scale
   nothing; say why.
3. Weights are still to be quantized by a Job (`quantizing.py`): keep the children in force, scale those pools of them that the
   spec has too, and see to the Job.
4. Accepted: the children in force are those of the current spec if their hash says so, else they are rendered anew;
   then scale by `replicas.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from steelyard.api.labels import PAUSED, RENDER
from steelyard.api.service import InferenceService
from steelyard.api.status import RolloutStatus
from steelyard.decide import accept, fingerprint, installation, replicas, rollout_pause
from steelyard.decide.feasibility.judge import Judgement
from steelyard.decide.feasibility.service import judged
from steelyard.decide.quantizing import Quantizing, under_way
from steelyard.decide.rollout import Rollout, rollout
from steelyard.decide.rollout_pause import Judged
from steelyard.decide.schedule import scheduled
from steelyard.decide.snapshot import Body, Revision, Snapshot

NO_IMAGES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Plan:
    """What to do; `service` is None where the spec cannot be read at all."""

    service: InferenceService | None
    paused: bool
    refusals: tuple[accept.Refusal, ...]
    keep: Revision | None  # children to hold in place as they were rendered
    render: bool  # children are to be rendered from the spec, under `spec_hash`
    spec_hash: str
    scales: tuple[replicas.Scale, ...]
    autoscaled: bool = False  # numbers follow the load, and the autoscaler reports on them
    judgement: Judgement = Judgement()  # noqa: RUF009 (it is frozen)
    rollout: Rollout | None = None  # the replacement of pods by those of `keep`, and its next step
    progress: RolloutStatus | None = None  # how far it is, and whether it waits
    quantizing: Quantizing | None = None  # Jobs that have to be done before the spec's children can be rendered


@dataclass(frozen=True)
class Moment:
    """When a plan is made, in unix seconds, and what was judged just before."""

    now: float = 0.0
    judged: Judged | None = None


def plan(
    snapshot: Snapshot,
    autoscaled: bool = False,
    engine_images: Mapping[str, str] = NO_IMAGES,
    moment: Moment = Moment(),
    node_cache: str | None = None,
    quantize_image: str | None = None,
) -> Plan:
    """Decide by the rules above; `engine_images` are those that the installation names, by spec.engine.name,
    `node_cache` the folder of nodes that it gives to models, and `quantize_image` what its Jobs run."""
    annotations = snapshot.service["metadata"].get("annotations") or {}
    paused = annotations.get(PAUSED) == "true"
    service, refusals = read(snapshot.service)
    judgement, wanted = Judgement(), ""
    current, up_to_date = snapshot.current, False
    if service is not None:
        wanted = fingerprint.spec_hash(service, annotations.get(RENDER, ""))
        up_to_date = current is not None and current.spec_hash == wanted
        judgement = judged(installation.as_installed(service, engine_images), snapshot.accelerators)
        refusals = accept.refusals(service, snapshot.accelerators, judgement)
        refusals += installation.refusals(service, snapshot.accelerators, engine_images, node_cache, quantize_image)
        refusals += () if up_to_date else installation.of_another_version(service, engine_images)
    if service is None or refusals:
        return Plan(
            service,
            paused,
            refusals,
            keep=current,
            render=False,
            spec_hash="",
            scales=(),
            autoscaled=autoscaled,
            judgement=judgement,
            **({} if paused else _rolling(snapshot, service if autoscaled else None, moment)),
        )
    quantizing = None if up_to_date or paused else under_way(service, snapshot.jobs, moment.now)
    stays = up_to_date or paused or quantizing is not None
    return Plan(
        service=service,
        paused=paused,
        refusals=(),
        keep=current if stays else None,
        render=not stays,
        spec_hash=wanted,
        scales=() if paused else _scales(snapshot, service, autoscaled, moment.now, in_force=quantizing is not None),
        autoscaled=autoscaled,
        judgement=judgement,
        quantizing=quantizing,
        **(_rolling(snapshot, service if autoscaled else None, moment) if stays and not paused else {}),
    )


def _scales(
    snapshot: Snapshot, service: InferenceService, autoscaled: bool, now: float, in_force: bool
) -> tuple[replicas.Scale, ...]:
    """The numbers of replicas to write, with the minima that hold now; with `in_force` only of what is there."""
    there = {d.pool: d for d in snapshot.deployments}
    found = replicas.scales(scheduled(service, now), there, autoscaled)
    return tuple(scale for scale in found if scale.pool in there) if in_force else found


def _rolling(snapshot: Snapshot, service: InferenceService | None, moment: Moment) -> dict[str, Any]:
    """The rollout towards the children in force; `service` is None where nothing can make it wait.

    A spec that was refused says by its own objectives whether it waits: an edit that changes nothing lifts no pause.
    """
    current = snapshot.current
    seasoned = moment.now - rollout_pause.SEASON_SECONDS if rollout_pause.waits(service) else inf
    found = rollout(snapshot, current.children, seasoned) if current is not None else None
    if found is None or current is None:
        return {}
    before = rollout_pause.previous(snapshot.service)
    progress = rollout_pause.progress(service, current.name, found, before, moment.judged, moment.now)
    return {"rollout": found, "progress": progress}


def read(body: Body) -> tuple[InferenceService | None, tuple[accept.Refusal, ...]]:
    """Read the object as our type; status is left out, since an older operator may have written another form."""
    try:
        return InferenceService.read({key: value for key, value in body.items() if key != "status"}), ()
    except ValidationError as error:
        return None, accept.unreadable(error)

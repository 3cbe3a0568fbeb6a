"""One look at everything that belongs to a service, straight from the API server, into a frozen `Snapshot`.

Nothing is kept here between two looks: a reconcile that starts later sees what is then there, so a missed or repeated watch
event changes nothing (B11, B13, B14). What need not be read again, and why, is `run/rest.py`'s business.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any

from msgspec.json import encode
from pydantic import ValidationError

from steelyard.api import labels
from steelyard.api.accelerator import Accelerator
from steelyard.decide.snapshot import Deployment, Revision, Snapshot
from steelyard.observe.client import Api, Body, Missing
from steelyard.observe.first_ready import Known, first_ready
from steelyard.observe.jobs import job_of, of_a_job
from steelyard.observe.pods import deployment_trouble, over, pod_of
from steelyard.observe.resources import (
    ACCELERATOR,
    CHILD_KINDS,
    CONTROLLER_REVISION,
    DEPLOYMENT,
    INFERENCE_SERVICE,
    JOB,
    LEADER_WORKER_SET,
    POD,
    POOLS,
)

DEFAULT_ACCELERATOR = "cpu"
NOTHING_KNOWN: Known = MappingProxyType({})
POOL_KINDS = frozenset(resource.kind for resource in POOLS)
HELD = frozenset(resource.kind for resource in CHILD_KINDS) - {DEPLOYMENT.kind}


@dataclass(frozen=True)
class Observation:
    """What was seen: the snapshot for deciding, and the live children for applying."""

    snapshot: Snapshot
    children: dict[tuple[str, str], Body]  # by kind and name
    revisions: tuple[Body, ...]  # ControllerRevisions, oldest first
    pods: tuple[Body, ...] = ()  # of engines and gateways, without those that are over
    left_out: frozenset[str] = frozenset()  # kinds that were not read
    first_ready: Known = field(default_factory=dict)  # when pods were ready first, for the next look

    @cached_property
    def deployments_hash(self) -> str:
        """A hash of all of the pools and the gateway that may drift: neither status nor replicas, nor who wrote which field."""
        held = []
        for (kind, name), body in sorted(self.children.items(), key=lambda child: child[0]):
            if kind in POOL_KINDS:
                meta, spec = body["metadata"], body["spec"]
                facts = [
                    meta.get(fact) for fact in ("uid", "labels", "annotations", "ownerReferences", "deletionTimestamp")
                ]
                held.append([name, facts, {field: value for field, value in spec.items() if field != "replicas"}])
        return hashlib.sha256(encode(held, order="sorted")).hexdigest()


@dataclass(frozen=True)
class Settled:
    """What a look that found everything in place saw, as far as the next one needs it; hashes, no objects of the service."""

    uid: str  # of the service
    revision: Revision  # the children in force, without their content
    deployments: str  # a hash of what decides whether they have drifted
    accelerators: Mapping[str, Accelerator | None]
    grouped: bool = False  # some pool's replicas span nodes


def observe(
    api: Api,
    namespace: str,
    name: str,
    leave_out: frozenset[str] = frozenset(),
    settled: Settled | None = None,
    ready_before: Known = NOTHING_KNOWN,
) -> Observation | None:
    """Look at one service; None when it is gone or going (its children then follow by their owner reference).

    Kinds to `leave_out` are not read; never Deployments, whose counts the snapshot holds. What the snapshot holds of the
    others is taken from `settled`; the revision only where all kinds of children rest, since it is what they are held to.
    `ready_before` is the last look's `first_ready`.
    """
    service = api.find(INFERENCE_SERVICE, namespace, name)
    if service is None or "deletionTimestamp" in service["metadata"]:
        return None
    ours = f"{labels.MANAGED_BY}={labels.MANAGER},{labels.SERVICE}={name}"
    uid = service["metadata"]["uid"]
    if settled is None or settled.uid != uid:
        leave_out = frozenset()
    elif not leave_out >= HELD:
        leave_out -= {CONTROLLER_REVISION.kind}
    children = {
        (resource.kind, body["metadata"]["name"]): body
        for resource in CHILD_KINDS
        if resource.kind not in leave_out
        for body in api.list(resource, namespace, ours)
    }
    known = settled if settled is not None and CONTROLLER_REVISION.kind in leave_out else None
    stored = () if known is not None else api.list(CONTROLLER_REVISION, namespace, ours)
    revisions = sorted(
        (body for body in stored if _owned_by(body, uid)), key=lambda body: int(body.get("revision") or 0)
    )
    grouped = known.grouped if known is not None else any(map(_has_groups, revisions))
    if grouped:
        children |= {(LEADER_WORKER_SET.kind, body["metadata"]["name"]): body for body in _groups(api, namespace, ours)}
    there = api.list(POD, namespace, ours)
    pods = [body for body in there if not over(body) and not of_a_job(body)]
    readiness = first_ready(pods, ready_before)
    snapshot = Snapshot(
        service=service,
        accelerators=_accelerators(api, service, settled if ACCELERATOR.kind in leave_out else None),
        deployments=tuple(_pool(body) for (kind, _), body in children.items() if kind in POOL_KINDS),
        pods=tuple(pod_of(body, readiness.get(body["metadata"]["uid"])) for body in pods),
        jobs=tuple(job_of(api, body, there) for (kind, _), body in children.items() if kind == JOB.kind),
        revisions=(known.revision,) if known is not None else tuple(_revision(body) for body in revisions),
    )
    return Observation(snapshot, children, tuple(revisions), tuple(pods), leave_out, readiness)


def settled(seen: Observation, revision: Revision) -> Settled:
    """Keep what the next look needs of one that found the children of `revision` in place."""
    return Settled(
        uid=seen.snapshot.service["metadata"]["uid"],
        revision=replace(revision, children=()),
        deployments=seen.deployments_hash,
        accelerators=seen.snapshot.accelerators,
        grouped=any(kind == LEADER_WORKER_SET.kind for kind, _ in seen.children),
    )


def accelerator_names(spec: Body) -> list[str]:
    """Name the Accelerators that a spec mentions, without reading the rest of it."""
    names = {str(spec.get("accelerator") or DEFAULT_ACCELERATOR)}
    for role in (labels.PREFILL, labels.DECODE, labels.AGGREGATED):
        own = (spec.get(role) or {}).get("accelerator")
        names |= {str(own)} if own else set()
    return sorted(names)


def _accelerators(api: Api, service: Body, known: Settled | None) -> Mapping[str, Accelerator | None]:
    names = accelerator_names(service.get("spec") or {})
    if known is not None and known.accelerators.keys() == set(names):
        return known.accelerators
    return {name: _accelerator(api, name) for name in names}


def _accelerator(api: Api, name: str) -> Accelerator | None:
    """Read one Accelerator; one that cannot be read as our type counts as absent."""
    body = api.find(ACCELERATOR, None, name)
    return None if body is None else _read(json.dumps({key: value for key, value in body.items() if key != "status"}))


@lru_cache(maxsize=256)
def _read(text: str) -> Accelerator | None:
    """Read an Accelerator's text; services that name the same hardware share one copy of it."""
    try:
        return Accelerator.read(json.loads(text))
    except ValidationError:
        return None


def _owned_by(body: Body, uid: str) -> bool:
    return any(reference.get("uid") == uid for reference in body["metadata"].get("ownerReferences") or [])


def _revision(body: Body) -> Revision:
    meta = body["metadata"]
    return Revision(
        name=meta["name"],
        number=int(body.get("revision") or 0),
        spec_hash=(meta.get("annotations") or {}).get(labels.SPEC_HASH, ""),
        children=tuple((body.get("data") or {}).get("children") or ()),
    )


def _has_groups(revision: Body) -> bool:
    """Whether children of a revision are LeaderWorkerSets; those of an earlier one may still be there."""
    return any(child["kind"] == LEADER_WORKER_SET.kind for child in (revision.get("data") or {}).get("children") or ())


def _groups(api: Api, namespace: str, ours: str) -> Sequence[Body]:
    """The LeaderWorkerSets; none where the kind is not installed any more."""
    try:
        return api.list(LEADER_WORKER_SET, namespace, ours)
    except Missing:
        return ()


def _pool(body: Body) -> Deployment:
    """Read a pool, or the gateway. A LeaderWorkerSet counts whole replicas and says nothing of what it has seen."""
    meta, spec, status = body["metadata"], body["spec"], body.get("status") or {}
    grouped = body["kind"] == LEADER_WORKER_SET.kind
    template = spec["leaderWorkerTemplate"]["leaderTemplate"] if grouped else spec["template"]
    return Deployment(
        name=meta["name"],
        pool=(meta.get("labels") or {}).get(labels.POOL, ""),
        replicas=int(spec.get("replicas", 1)),
        replicas_written=any(_writes_replicas(entry) for entry in meta.get("managedFields") or []),
        ready=int(status.get("readyReplicas") or 0),
        updated=int(status.get("updatedReplicas") or 0),
        observed=grouped or int(status.get("observedGeneration") or 0) >= int(meta.get("generation") or 0),
        revision=(template["metadata"].get("labels") or {}).get(labels.REVISION, ""),
        trouble=None if grouped else deployment_trouble(status),
        grouped=grouped,
    )


def _writes_replicas(entry: dict[str, Any]) -> bool:
    """Whether a record of field ownership covers `spec.replicas`; defaults of the API server have no owner."""
    return "f:replicas" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})

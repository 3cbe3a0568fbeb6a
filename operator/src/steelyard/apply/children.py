"""Bring the children of one service to what is wanted: apply what differs, then prune what is left over.

Nothing is written where nothing differs (`drift.py`). An object that belongs to somebody else is never taken over: it
raises `Rejected` with its name. Deletion carries the uid that was seen, so that an object recreated meanwhile stays.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from steelyard.api.labels import FIELD_MANAGER, MANAGED_BY, MANAGER, SERVICE, SPEC_HASH
from steelyard.api.reasons import Reason
from steelyard.apply.drift import difference, stamped
from steelyard.decide.outcome import Rejected, Waiting
from steelyard.observe.client import Api, Body, Missing
from steelyard.observe.resources import BY_KIND, LEADER_WORKER_SET

NO_GROUPS = (
    "a replica spans nodes, which takes a LeaderWorkerSet, and this cluster does not have that kind; install LeaderWorkerSet (LWS)"
    " 0.6 or later, or set parallelism to what one node holds"
)
UNCHANGING = frozenset({"Job"})  # named by what they do: one that runs is as it was wanted, or that does no harm

Key = tuple[str, str]  # kind, name; children live in the owner's namespace


@dataclass(frozen=True)
class Owner:
    """The InferenceService whose children are applied."""

    name: str
    namespace: str
    uid: str


@dataclass
class Changes:
    """What one pass changed, as `Kind/name`; `repaired` adds the field that somebody had changed."""

    created: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    repaired: list[str] = field(default_factory=list)
    pruned: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.created or self.updated or self.repaired or self.pruned)


def key_of(body: Body) -> Key:
    return (body["kind"], body["metadata"]["name"])


@dataclass(frozen=True)
class Claim:
    """One wanted child, stamped, and the live object of its name, which is ours or absent."""

    manifest: Body
    live: Body | None


def claim(api: Api, owner: Owner, wanted: Iterable[Body], live: Mapping[Key, Body]) -> list[Claim]:
    """Find the live object of every wanted child and see that none belongs to somebody else; writes nothing.

    `live` holds the objects that carry the service's label; one whose labels were taken off is found by its name.
    Raises `Rejected` for a name that is taken and `Waiting` while an older child of that name is being deleted.
    """
    claims = []
    for manifest in map(stamped, wanted):
        key = key_of(manifest)
        body = live.get(key) or api.find(BY_KIND[key[0]], owner.namespace, key[1])
        if body is not None:
            _check_ownership(body, owner, "/".join(key))
        claims.append(Claim(manifest, body))
    return claims


def rehearse(api: Api, claims: Iterable[Claim]) -> None:
    """Let the API server judge the children without storing them, so that a refused spec leaves nothing half done.

    One that is in place as it is wanted is not asked about: it will not be written. A RoleBinding is left out: its Role must
    be stored before the API server can see that it gives no more than we have.
    """
    for each in claims:
        kind = each.manifest["kind"]
        if kind != "RoleBinding" and (each.live is None or _differs(each.manifest, each.live) is not None):
            _apply(api, each.manifest, rehearse=True)


def bring(api: Api, owner: Owner, claims: Iterable[Claim], live: Mapping[Key, Body], changes: Changes) -> None:
    """Apply every claimed child that is missing or differs, in the given order, then prune the others.

    `changes` collects what was done, also when an `ApiError` ends it half-way.
    """
    keep = set()
    for each in claims:
        keep.add(key_of(each.manifest))
        _bring_one(api, each.manifest, each.live, changes)
    for key, body in live.items():
        if key not in keep and _is_ours(body, owner) and "deletionTimestamp" not in body["metadata"]:
            api.delete(BY_KIND[key[0]], owner.namespace, key[1], uid=body["metadata"]["uid"])
            changes.pruned.append("/".join(key))


def renew(api: Api, owner: Owner, wanted: Iterable[Body], live: Mapping[Key, Body], changes: Changes) -> None:
    """Delete those of ours that would be made otherwise now; raises `Waiting`, since they are made anew once they are gone.

    The hash of what was applied decides alone: no default of the API server may delete the same object again and again.
    """
    gone = []
    for manifest in map(stamped, wanted):
        key, stamp = key_of(manifest), manifest["metadata"]["annotations"][SPEC_HASH]
        body = live.get(key)
        if body is None or not _is_ours(body, owner) or "deletionTimestamp" in body["metadata"]:
            continue
        if (body["metadata"].get("annotations") or {}).get(SPEC_HASH) != stamp:
            api.delete(BY_KIND[key[0]], owner.namespace, key[1], uid=body["metadata"]["uid"])
            changes.pruned.append("/".join(key))
            gone.append("/".join(key))
    if gone:
        raise Waiting(Reason.DELETING, f"{', '.join(gone)} could not start and is made anew as it would be now", 2)


def _bring_one(api: Api, manifest: Body, live: Body | None, changes: Changes) -> None:
    kind, name = key_of(manifest)
    place = f"{kind}/{name}"
    if live is None:
        _apply(api, manifest)
        changes.created.append(place)
        return
    field_name = _differs(manifest, live)
    if field_name is None:
        return
    written = _apply(api, manifest)
    if written["metadata"].get("resourceVersion") == live["metadata"].get("resourceVersion"):
        return  # the API server holds another spelling of the same; nothing was changed, so nothing is told
    before = (live["metadata"].get("annotations") or {}).get(SPEC_HASH)
    if before == manifest["metadata"]["annotations"][SPEC_HASH]:
        changes.repaired.append(f"{place} {field_name}")
    else:
        changes.updated.append(place)


def _apply(api: Api, manifest: Body, rehearse: bool = False) -> Body:
    """Apply one child; raises `Rejected` where its kind is not installed, which may be so of one that is not Kubernetes' own."""
    resource = BY_KIND[manifest["kind"]]
    try:
        return api.apply(resource, manifest, FIELD_MANAGER, rehearse=rehearse)
    except Missing as missing:
        if resource is not LEADER_WORKER_SET:
            raise
        raise Rejected(Reason.SPANS_NODES, NO_GROUPS) from missing


def _differs(manifest: Body, live: Body) -> str | None:
    """The first field that is to be written anew."""
    return None if manifest["kind"] in UNCHANGING else difference(manifest, live)


def _check_ownership(live: Body, owner: Owner, place: str) -> None:
    meta = live["metadata"]
    if "deletionTimestamp" in meta:
        raise Waiting(Reason.DELETING, f"{place} is being deleted; it is created anew once it is gone", 2)
    if _is_ours(live, owner):
        return
    for reference in meta.get("ownerReferences") or []:
        if reference.get("kind") == "InferenceService" and reference.get("name") == owner.name:
            raise Waiting(
                Reason.DELETING,
                f"{place} belongs to a deleted InferenceService of the same name; the garbage collector removes it",
                5,
            )
    raise Rejected(
        Reason.NAME_TAKEN,
        f"{place} exists in namespace {owner.namespace} and does not belong to this InferenceService; "
        f"delete or rename it, or give metadata.name (now {owner.name!r}) another value",
    )


def _is_ours(body: Body, owner: Owner) -> bool:
    """Ours is what names this owner's uid, or carries its labels and has no controller at all."""
    meta = body["metadata"]
    references = meta.get("ownerReferences") or []
    if any(reference.get("uid") == owner.uid for reference in references):
        return True
    labels = meta.get("labels") or {}
    labelled = labels.get(MANAGED_BY) == MANAGER and labels.get(SERVICE) == owner.name
    return labelled and not any(reference.get("controller") for reference in references)

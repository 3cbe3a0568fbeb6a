"""An API server of dictionaries, for the unit tests of our own code: what it does is held to the real one.

It keeps ownership of fields by server-side apply (field_ownership.py), versions that stand still where nothing changes,
generations, uids with their preconditions, immutable fields, `/scale` and `/status`, dry runs, finalizers, and the garbage
collector's work on request. `e2e/scenarios/test_faults_cluster_fake.py` runs the same steps on this and on a real API
server and compares. `before` and `after` are called around every call, so that a test can let the world change, the call
fail, or the operator die there.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from field_ownership import Manager, Owners, applied, records, updated
from operator_bodies import merged
from steelyard.observe.client import Api, Body, Conflict, Malformed, Missing
from steelyard.observe.resources import BY_KIND, EVENT, POOLS, Resource

Key = tuple[str, str, str]  # kind, namespace, name
IMMUTABLE = {
    "ControllerRevision": ("data",),
    "Deployment": ("spec", "selector"),
    "Job": ("spec", "template"),
    "RoleBinding": ("roleRef",),
}
REQUIRED = {"LeaderWorkerSet": ("spec", "leaderWorkerTemplate")}
GENERATIONS = frozenset(
    {
        "Deployment",
        "DaemonSet",
        "Job",
        "LeaderWorkerSet",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "InferenceService",
        "Accelerator",
    }
)
SERVICE_DEFAULTS = {"spec": {"type": "ClusterIP", "sessionAffinity": "None"}}


def _nothing(verb: str, place: str) -> None:
    """Neither disturb nor note a call."""


class MemoryApi(Api):
    """The same methods as `Api`, over a dictionary."""

    def __init__(self) -> None:
        self.objects: dict[Key, Body] = {}
        self.writes: list[str] = []
        self.events: list[tuple[str, str]] = []
        self.told: list[tuple[str, Body]] = []  # what watches would hear: ADDED, MODIFIED or DELETED, and the object
        self.missing: set[str] = set()  # kinds that are not installed
        self.logs: dict[tuple[str, str], str] = {}  # by pod and container
        self.fail_next: Exception | None = None  # of the next apply
        self.before: Callable[[str, str], None] = _nothing
        self.after: Callable[[str, str], None] = _nothing
        self._owners: dict[Key, Owners] = {}
        self._numbers = itertools.count(1)

    # What users, controllers and the cluster do.

    def put(self, body: Body) -> None:
        """Place an object from outside, whole, with nobody as the owner of its fields."""
        stored = copy.deepcopy(body)
        meta = stored["metadata"]
        meta.setdefault("uid", f"uid-of-{meta['name']}")
        self._keep(self._key(BY_KIND[body["kind"]], meta.get("namespace"), meta["name"]), stored, {})

    def edit(self, kind: str, name: str, change: Body, manager: str = "kubectl") -> None:
        """Change an object by a merge patch from outside; status is written as its controller does."""
        key = self._find(kind, name)
        sub = "status" if set(change) == {"status"} else ""
        self._update(key, merged(self.objects[key], change), Manager(manager, "Update", sub))

    def scale_by_hand(self, name: str, replicas: int, manager: str = "kubectl") -> None:
        """Patch `/scale`: who did is recorded only where somebody owned the number before."""
        key = self._find("Deployment", name)
        owned = any(("f:spec", "f:replicas") in paths for paths in self._owners[key].values())
        body = merged(self.objects[key], {"spec": {"replicas": replicas}})
        if owned:
            self._update(key, body, Manager(manager, "Update", "scale"))
        else:
            self._keep(key, body, self._owners[key])

    def remove(self, kind: str, name: str) -> None:
        """Delete from outside; an object with finalizers stays until they are taken off."""
        self._delete(self._find(kind, name))

    def collect_garbage(self) -> None:
        """Delete what an object that is gone had owned."""
        uids = {body["metadata"]["uid"] for body in self.objects.values()}
        for key, body in list(self.objects.items()):
            owners = body["metadata"].get("ownerReferences") or []
            if owners and not any(owner["uid"] in uids for owner in owners):
                self._delete(key)

    def kinds(self) -> list[str]:
        """`Kind/name` of everything, sorted."""
        return sorted(f"{kind}/{name}" for kind, _, name in self.objects)

    def body(self, kind: str, name: str) -> Body:
        return copy.deepcopy(self.objects[self._find(kind, name)])

    # What the operator asks.

    def get(self, resource: Resource, namespace: str | None, name: str) -> Body:
        place = f"{resource.kind}/{name}"
        self.before("get", place)
        self._installed(resource)
        try:
            return copy.deepcopy(self.objects[self._key(resource, namespace, name)])
        except KeyError:
            raise Missing(404, f"{place} not found") from None

    def list(self, resource: Resource, namespace: str | None, labels: str | None = None) -> Sequence[Body]:
        self.before("list", resource.kind)
        self._installed(resource)
        wanted = dict(pair.split("=") for pair in labels.split(",")) if labels else {}
        return [
            copy.deepcopy(body)
            for (kind, place, _), body in self.objects.items()
            if kind == resource.kind
            and (namespace is None or place == namespace)
            and wanted.items() <= (body["metadata"].get("labels") or {}).items()
        ]

    def log(self, resource: Resource, namespace: str, pod: str, container: str, lines: int, size: int) -> str:
        self.before("log", f"{resource.kind}/{pod}")
        if (pod, container) not in self.logs:
            raise Malformed(400, f"container {container} of pod {pod} is waiting to start")
        return "".join(self.logs[pod, container].splitlines(keepends=True)[-lines:])[-size:]

    def lists(self, resources: Sequence[Resource], namespace: str, labels: str) -> Sequence[Sequence[Body]]:
        return [self.list(resource, namespace, labels) for resource in resources]

    def apply(
        self, resource: Resource, body: Body, manager: str, subresource: str | None = None, rehearse: bool = False
    ) -> Body:
        meta = body["metadata"]
        place = f"{resource.kind}/{meta['name']}" + (f"/{subresource}" if subresource else "")
        verb = "rehearse" if rehearse else "apply"
        self.before(verb, place)
        self._installed(resource)
        if self.fail_next is not None:
            failure, self.fail_next = self.fail_next, None
            raise failure
        if not rehearse:
            self.writes.append(place)
        written = self._apply(resource, body, Manager(manager, "Apply", subresource or ""), rehearse)
        self.after(verb, place)
        return written

    def create(self, resource: Resource, body: Body, manager: str) -> Body:
        place = f"{resource.kind}/{body['metadata']['name']}"
        self.before("create", place)
        if resource is EVENT:
            self.events.append((body["reason"], body["note"]))
            return body
        key = self._key(resource, body["metadata"].get("namespace"), body["metadata"]["name"])
        if key in self.objects:
            raise Conflict(409, f"{place} already exists")
        created = _defaulted(resource, copy.deepcopy(body))
        created["metadata"]["uid"] = f"uid-{next(self._numbers)}"
        self._keep(key, created, updated({}, body, Manager(manager, "Update"), {}))
        self.after("create", place)
        return copy.deepcopy(self.objects[key])

    def replace(self, resource: Resource, body: Body, manager: str) -> Body:
        place = f"{resource.kind}/{body['metadata']['name']}"
        self.before("replace", place)
        key = self._key(resource, body["metadata"].get("namespace"), body["metadata"]["name"])
        if key not in self.objects:
            raise Missing(404, f"{place} not found")
        if body["metadata"].get("resourceVersion") != self.objects[key]["metadata"]["resourceVersion"]:
            raise Conflict(409, f"{place}: the object has been modified")
        self._update(key, copy.deepcopy(body), Manager(manager, "Update"))
        self.after("replace", place)
        return copy.deepcopy(self.objects[key])

    def merge(self, resource: Resource, namespace: str | None, name: str, uid: str, change: Body, manager: str) -> Body:
        place = f"{resource.kind}/{name}"
        self.before("merge", place)
        key = self._key(resource, namespace, name)
        if key not in self.objects:
            raise Missing(404, f"{place} not found")
        if self.objects[key]["metadata"]["uid"] != uid:
            raise Conflict(409, f"{place}: the uid in the precondition does not match")
        self.writes.append(f"merge {place}")
        self._update(key, merged(self.objects[key], change), Manager(manager, "Update"))
        self.after("merge", place)
        return copy.deepcopy(self.objects[key])

    def delete(self, resource: Resource, namespace: str | None, name: str, uid: str) -> None:
        place = f"{resource.kind}/{name}"
        self.before("delete", place)
        self.writes.append(f"delete {place}")
        key = self._key(resource, namespace, name)
        if key in self.objects:
            if self.objects[key]["metadata"]["uid"] != uid:
                raise Conflict(409, f"{place}: the uid in the precondition does not match")
            self._delete(key)
        self.after("delete", place)

    # How it is kept.

    def _installed(self, resource: Resource) -> None:
        if resource.kind in self.missing:
            raise Missing(404, "the server could not find the requested resource")

    def _apply(self, resource: Resource, body: Body, manager: Manager, rehearse: bool) -> Body:
        meta = body["metadata"]
        key = self._key(resource, meta.get("namespace"), meta["name"])
        live = self.objects.get(key)
        wish = body
        if manager.subresource:
            if live is None:
                raise Missing(404, f"{resource.kind} {meta['name']} not found")
            part = {"status": body["status"]} if manager.subresource == "status" else {"spec": body["spec"]}
            wish = {"kind": resource.kind, **part}
        role = (body.get("roleRef") or {}).get("name")
        if rehearse and role and ("Role", meta["namespace"], role) not in self.objects:
            raise Missing(404, "a binding to a Role that is not stored cannot be judged")
        after, owners = applied(live or {}, wish, manager, self._owners.get(key, {}))
        after = _defaulted(resource, after)
        if live is None:
            after["metadata"].setdefault("uid", f"uid-{next(self._numbers)}")
        self._judge(live, after)
        if rehearse:
            return after
        self._keep(key, after, owners)
        return copy.deepcopy(self.objects[key])

    def _update(self, key: Key, body: Body, manager: Manager) -> None:
        live = self.objects[key]
        self._judge(live, body)
        self._keep(key, _defaulted(BY_KIND[key[0]], body), updated(live, body, manager, self._owners[key]))

    def _keep(self, key: Key, body: Body, owners: Owners) -> None:
        """Store, unless nothing changes; a changed wish is a new generation."""
        live, body = self.objects.get(key), copy.deepcopy(body)
        meta = body["metadata"]
        if live is not None:
            meta.setdefault("uid", live["metadata"]["uid"])
            if _bare(live) == _bare(body) and self._owners[key] == owners:
                return
        wish = {name: value for name, value in body.items() if name not in ("metadata", "status")}
        if live is None:
            meta.setdefault("generation", 1)
        elif wish != {name: value for name, value in live.items() if name not in ("metadata", "status")}:
            meta["generation"] = int(live["metadata"].get("generation") or 0) + 1
        if key[0] not in GENERATIONS:
            meta.pop("generation", None)
        meta["resourceVersion"] = str(next(self._numbers))
        meta["managedFields"] = records(owners)
        self._owners[key], self.objects[key] = owners, body
        if "deletionTimestamp" in meta and not meta.get("finalizers") and key[0] != "InferenceService":
            self._delete(key)
        else:
            self.told.append(("ADDED" if live is None else "MODIFIED", copy.deepcopy(body)))

    def _delete(self, key: Key) -> None:
        body = self.objects[key]
        if body["metadata"].get("finalizers"):
            self._keep(key, merged(body, {"metadata": {"deletionTimestamp": "now"}}), self._owners[key])
            return
        del self.objects[key], self._owners[key]
        self.told.append(("DELETED", copy.deepcopy(body)))

    def _judge(self, live: Body | None, body: Body) -> None:
        """Refuse a change of what cannot be changed, and an object without what it must have."""
        required = REQUIRED.get(body["kind"])
        if required is not None and _at(body, required) is None:
            raise Malformed(422, f"{body['kind']} {body['metadata']['name']}: {'.'.join(required)}: Required value")
        path = IMMUTABLE.get(body["kind"])
        if live is not None and path is not None and _at(live, path) != _at(body, path):
            raise Malformed(422, f"{body['kind']} {body['metadata']['name']}: {'.'.join(path)}: field is immutable")

    def _find(self, kind: str, name: str) -> Key:
        return next(key for key in self.objects if key[0] == kind and key[2] == name)

    @staticmethod
    def _key(resource: Resource, namespace: str | None, name: str) -> Key:
        return (resource.kind, (namespace or "") if resource.namespaced else "", name)


def _defaulted(resource: Resource, body: Body) -> Body:
    """Fill in the defaults that our code could trip over: nobody owns them."""
    if resource in POOLS:
        body.setdefault("spec", {}).setdefault("replicas", 1)
    return merged(SERVICE_DEFAULTS, body) if resource.kind == "Service" else body


def _at(body: Body, path: Sequence[str]) -> Any:
    value: Any = body
    for name in path:
        value = (value or {}).get(name)
    return value


def _bare(body: Body) -> Body:
    own = ("resourceVersion", "managedFields", "generation")
    return body | {"metadata": {name: value for name, value in body["metadata"].items() if name not in own}}

"""An API server of dictionaries, for the reconcile's unit tests: apply, merge, delete, versions, and a log of writes.

It keeps what the tests need: ownership of `replicas` in managedFields, no version change where nothing changes, uids,
and the garbage collector's work on request. Conflicts and defaulting are tested on the real API server
(e2e/scenarios/test_operator_*.py).
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from typing import Any

from operator_bodies import merged
from steelyard.observe.client import Api, Body, Conflict, Missing
from steelyard.observe.resources import BY_KIND, DEPLOYMENT, EVENT, Resource

Key = tuple[str, str, str]


class MemoryApi(Api):
    """The same methods as `Api`, over a dictionary."""

    def __init__(self) -> None:
        self.objects: dict[Key, Body] = {}
        self.writes: list[str] = []
        self.events: list[tuple[str, str]] = []
        self.fail_next: Exception | None = None
        self._numbers = itertools.count(1)

    def put(self, body: Body) -> None:
        """Place an object from outside, as a user or a controller would."""
        stored = copy.deepcopy(body)
        meta = stored["metadata"]
        meta.setdefault("uid", f"uid-of-{meta['name']}")
        meta["resourceVersion"] = str(next(self._numbers))
        self.objects[self._key(BY_KIND[body["kind"]], meta.get("namespace"), meta["name"])] = stored

    def edit(self, kind: str, name: str, change: Body, manager: str = "kubectl") -> None:
        """Change an object from outside; a change of replicas is recorded as the manager's, if anybody owned them."""
        key = next(key for key in self.objects if key[0] == kind and key[2] == name)
        owned = "managedFields" in self.objects[key]["metadata"]
        self._store(key, merged(self.objects[key], change), manager, owned and "replicas" in change.get("spec", {}))

    def remove(self, kind: str, name: str) -> None:
        for key in [key for key in self.objects if key[0] == kind and key[2] == name]:
            del self.objects[key]

    def collect_garbage(self) -> None:
        """Delete what an object that is gone had owned."""
        uids = {body["metadata"]["uid"] for body in self.objects.values()}
        for key, body in list(self.objects.items()):
            owners = body["metadata"].get("ownerReferences") or []
            if owners and not any(owner["uid"] in uids for owner in owners):
                del self.objects[key]

    def kinds(self) -> list[str]:
        """`Kind/name` of everything, sorted."""
        return sorted(f"{kind}/{name}" for kind, _, name in self.objects)

    def body(self, kind: str, name: str) -> Body:
        return copy.deepcopy(next(body for key, body in self.objects.items() if key[0] == kind and key[2] == name))

    def get(self, resource: Resource, namespace: str | None, name: str) -> Body:
        try:
            return copy.deepcopy(self.objects[self._key(resource, namespace, name)])
        except KeyError:
            raise Missing(404, f"{resource.kind} {name} not found") from None

    def list(self, resource: Resource, namespace: str | None, labels: str | None = None) -> Sequence[Body]:
        wanted = dict(pair.split("=") for pair in labels.split(",")) if labels else {}
        return [
            copy.deepcopy(body)
            for (kind, place, _), body in self.objects.items()
            if kind == resource.kind
            and (namespace is None or place == namespace)
            and wanted.items() <= (body["metadata"].get("labels") or {}).items()
        ]

    def apply(
        self, resource: Resource, body: Body, manager: str, subresource: str | None = None, rehearse: bool = False
    ) -> Body:
        self._fail()
        if rehearse:
            role = (body.get("roleRef") or {}).get("name")
            if role and ("Role", body["metadata"]["namespace"], role) not in self.objects:
                raise Missing(404, "a binding to a Role that is not stored cannot be judged")
            return body
        meta = body["metadata"]
        key = self._key(resource, meta.get("namespace"), meta["name"])
        self.writes.append(f"{resource.kind}/{meta['name']}" + (f"/{subresource}" if subresource else ""))
        if subresource == "status":
            if key not in self.objects:
                raise Missing(404, "gone")
            return self._store(key, self.objects[key] | {"status": copy.deepcopy(body["status"])}, manager)
        before = self.objects.get(key)
        if subresource == "scale":
            if before is None:
                raise Missing(404, f"{meta['name']} not found")
            return self._store(key, merged(before, {"spec": body["spec"]}), manager, writes_replicas=True)
        if before is None:
            created = merged({"spec": {"replicas": 1}} if resource is DEPLOYMENT else {}, body)
            created["metadata"].setdefault("uid", f"uid-{next(self._numbers)}")
            return self._store(key, created, manager)
        kept = {name: before[name] for name in ("status",) if name in before}
        changed = merged(body, kept)
        changed["metadata"] = merged(before["metadata"], body["metadata"])
        if resource is DEPLOYMENT:
            changed["spec"]["replicas"] = before["spec"]["replicas"]
        return self._store(key, changed, manager)

    def create(self, resource: Resource, body: Body, manager: str) -> Body:
        if resource is EVENT:
            self.events.append((body["reason"], body["note"]))
            return body
        key = self._key(resource, body["metadata"].get("namespace"), body["metadata"]["name"])
        if key in self.objects:
            raise Conflict(409, "exists")
        return self._store(key, copy.deepcopy(body), manager)

    def replace(self, resource: Resource, body: Body, manager: str) -> Body:
        key = self._key(resource, body["metadata"].get("namespace"), body["metadata"]["name"])
        if body["metadata"].get("resourceVersion") != self.objects[key]["metadata"]["resourceVersion"]:
            raise Conflict(409, "the object has been modified")
        return self._store(key, copy.deepcopy(body), manager)

    def delete(self, resource: Resource, namespace: str | None, name: str, uid: str) -> None:
        self.writes.append(f"delete {resource.kind}/{name}")
        key = self._key(resource, namespace, name)
        if key in self.objects and self.objects[key]["metadata"]["uid"] != uid:
            raise Conflict(409, "the uid in the precondition does not match")
        self.objects.pop(key, None)

    def _store(self, key: Key, body: Body, manager: str, writes_replicas: bool = False) -> Body:
        before = self.objects.get(key)
        owned = before is not None and "managedFields" in before["metadata"]
        if before is not None and _bare(before) == _bare(body) and owned >= writes_replicas:
            return copy.deepcopy(before)
        body = copy.deepcopy(body)
        body["metadata"]["resourceVersion"] = str(next(self._numbers))
        if writes_replicas:
            entry: Any = {"manager": manager, "fieldsV1": {"f:spec": {"f:replicas": {}}}}
            body["metadata"]["managedFields"] = [entry]
        self.objects[key] = body
        return copy.deepcopy(body)

    def _fail(self) -> None:
        if self.fail_next is not None:
            failure, self.fail_next = self.fail_next, None
            raise failure

    @staticmethod
    def _key(resource: Resource, namespace: str | None, name: str) -> Key:
        return (resource.kind, (namespace or "") if resource.namespaced else "", name)


def _bare(body: Body) -> Body:
    meta = {name: value for name, value in body["metadata"].items() if name not in ("resourceVersion", "managedFields")}
    return body | {"metadata": meta}

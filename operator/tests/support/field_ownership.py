"""Server-side apply as a pure function: who owns which field, and what an apply or an update makes of an object.

Fields are paths in the API server's own spelling (`f:spec`, `k:{"name":"engine"}`), so that the records can be compared with
the real `managedFields` (e2e/scenarios/test_faults_cluster_fake.py). Known are the lists, maps and structures that our
children hold; which of them are atomic is the API's schema, written down below.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

Body = dict[str, Any]
Path = tuple[str, ...]

ITEM_KEYS = {
    "containers": ("name",),
    "initContainers": ("name",),
    "volumes": ("name",),
    "env": ("name",),
    "volumeMounts": ("mountPath",),
    "imagePullSecrets": ("name",),
    "ownerReferences": ("uid",),
    "conditions": ("type",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
}
ATOMIC = frozenset(
    {
        *("f:selector", "f:podSelector", "f:namespaceSelector", "f:labelSelector", "f:nodeSelector", "f:roleRef"),
        *("f:fieldRef", "f:configMapKeyRef", "f:secretKeyRef"),
    }
)
REVISION_DATA = ("f:data",)  # of a ControllerRevision: one value, where a ConfigMap's is a map
UNOWNED = frozenset(
    {
        *("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"),
        *("deletionTimestamp", "deletionGracePeriodSeconds"),
    }
)


class Manager(NamedTuple):
    """Who wrote, how (`Apply` or `Update`), and through which subresource."""

    name: str
    operation: str
    subresource: str = ""


Owners = dict[Manager, frozenset[Path]]


def applied(live: Body, wish: Body, manager: Manager, owners: Owners) -> tuple[Body, Owners]:
    """Give the object and its owners after `wish` was applied by force; `live` is empty where it is created."""
    wanted, before = dict(leaves(wish)), dict(leaves(live))
    mine = owners.get(manager, frozenset())
    merged: Body = _merged(live, wish, (), wish["kind"])
    others = frozenset().union(*(paths for who, paths in owners.items() if who != manager))
    for path in sorted(mine - wanted.keys(), key=len):  # an item before its own fields
        if path not in others and not any(_under(other, path) for other in others | wanted.keys()):
            _remove(merged, path)
    changed = {path for path, value in wanted.items() if path not in before or before[path] != value}
    kept = {who: paths - changed for who, paths in owners.items() if who != manager}
    return merged, _existing({**kept, manager: frozenset(wanted)}, merged)


def updated(live: Body, body: Body, manager: Manager, owners: Owners) -> Owners:
    """Give the owners after `body` was written over `live`, as a patch or a replacement does."""
    before, after = dict(leaves(live)), dict(leaves(body))
    changed = {path for path, value in after.items() if path not in before or before[path] != value}
    kept = {who: paths - changed for who, paths in owners.items()}
    kept[manager] = kept.get(manager, frozenset()) | frozenset(changed)
    return _existing(kept, body)


def leaves(body: Body) -> Iterator[tuple[Path, Any]]:
    """Every field that can be owned with its value; an item of a keyed list is one, and so is each field of it."""
    for name, value in body.items():
        if name not in ("apiVersion", "kind"):
            yield from _leaves(value, (f"f:{name}",), str(body.get("kind")))


def _leaves(value: Any, path: Path, kind: str) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, Mapping) and value and not _atomic(path, kind):
        for name, inner in value.items():
            if path != ("f:metadata",) or name not in UNOWNED:
                yield from _leaves(inner, (*path, f"f:{name}"), kind)
    elif isinstance(value, list) and value and (keys := _keys(path, value)):
        for item in value:
            place = (*path, _key(keys, item))
            whole = path[-1] == "f:ownerReferences"
            yield place, item if whole else None
            if not whole:
                yield from _leaves(item, place, kind)
    elif path[-1] == "f:finalizers":
        yield from (((*path, f"v:{json.dumps(name)}"), name) for name in value)
    else:
        yield path, value


def records(owners: Owners) -> list[Body]:
    """Spell owners as `metadata.managedFields`."""
    return [
        {
            "manager": who.name,
            "operation": who.operation,
            **({"subresource": who.subresource} if who.subresource else {}),
            "fieldsV1": _nested(paths),
        }
        for who, paths in owners.items()
    ]


def paths_of(fields: Body, path: Path = ()) -> Iterator[Path]:
    """Read `fieldsV1` back into paths. A mark on a map itself is left out: it says nothing that its fields do not."""
    for name, inner in fields.items():
        if name == ".":
            if path[-1].startswith("k:"):
                yield path
        elif inner == {}:
            yield (*path, name)
        else:
            yield from paths_of(inner, (*path, name))


def _atomic(path: Path, kind: str) -> bool:
    return path[-1] in ATOMIC or (kind == "ControllerRevision" and path == REVISION_DATA)


def _keys(path: Path, value: list[Any]) -> tuple[str, ...] | None:
    if not path or not all(isinstance(item, Mapping) for item in value):
        return None
    name = path[-1].removeprefix("f:")
    if name == "ports":
        inside = "containerPort" if path[-2].startswith("k:") else "port"
        return None if "f:ingress" in path else (inside, "protocol")
    return ITEM_KEYS.get(name)


def _key(keys: tuple[str, ...], item: Mapping[str, Any]) -> str:
    return "k:" + json.dumps({key: item.get(key) for key in keys}, separators=(",", ":"))


def _merged(live: Any, wish: Any, path: Path, kind: str) -> Any:
    if isinstance(wish, Mapping) and isinstance(live, Mapping) and not (path and _atomic(path, kind)):
        result = copy.deepcopy(dict(live))
        for name, value in wish.items():
            place = (*path, f"f:{name}")
            result[name] = _merged(live[name], value, place, kind) if name in live else copy.deepcopy(value)
        return result
    keys = _keys(path, wish) if isinstance(wish, list) and isinstance(live, list) and live and wish else None
    if keys is None or not _keys(path, live):
        return copy.deepcopy(wish)
    wanted = {_key(keys, item): item for item in wish}
    items = {_key(keys, item): item for item in live}
    # The applier's order first, what others added after it.
    both = {
        name: _merged(items[name], item, (*path, name), kind) if name in items else item
        for name, item in wanted.items()
    }
    return copy.deepcopy([*both.values(), *(item for name, item in items.items() if name not in both)])


def _remove(body: Any, path: Path) -> bool:
    """Take one field or item out of an object, if it is there, and what is empty then; says whether `body` is."""
    step, rest = path[0], path[1:]
    if step.startswith("k:"):
        wanted = json.loads(step[2:])
        item = next((item for item in body if wanted.items() <= item.items()), None)
        if item is not None and (not rest or _remove(item, rest)):
            body.remove(item)
    elif isinstance(body, dict):
        name = step.removeprefix("f:")
        if name in body and (not rest or _remove(body[name], rest)):
            del body[name]
    return not body


def _under(path: Path, above: Path) -> bool:
    return len(path) > len(above) and path[: len(above)] == above


def _existing(owners: Owners, body: Body) -> Owners:
    """Forget fields that are gone, and managers who own nothing."""
    there = {path for path, _ in leaves(body)}
    return {who: found for who, paths in owners.items() if (found := paths & there)}


def _nested(paths: frozenset[Path]) -> Body:
    tree: Body = {}
    for path in sorted(paths):
        level = tree
        for step in path:
            level = level.setdefault(step, {})
        if path[-1].startswith("k:") and any(_under(other, path) for other in paths):
            level["."] = {}
    return tree

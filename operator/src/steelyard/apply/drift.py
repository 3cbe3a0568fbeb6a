"""Does a live object still say what we applied? A pure comparison that lets a quiet reconcile write nothing.

A child is applied again when one of two things holds:

1. the annotation `spec-hash` on the live object is not the hash of the wanted manifest (we want something else now,
   possibly *less*, which a comparison of what is wanted could not see);
2. a field that we want has another value in the live object (somebody changed it).

Fields that we do not set are nobody's drift: defaults of the API server, status, `replicas`, a label added by a user.
Lists whose items have an identity (containers by name, ports by number, …) are compared item by item; all others are
one value, so that an extra rule in a NetworkPolicy or a Role is seen.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from steelyard.api.labels import SPEC_HASH
from steelyard.api.quantities import Quantity

Body = dict[str, Any]

# Where the API server keeps a list as a map: field → the keys of an item. Same as the merge keys of server-side apply.
ITEM_KEYS: Mapping[str, tuple[str, ...]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "volumes": ("name",),
    "env": ("name",),
    "volumeMounts": ("mountPath",),
    "imagePullSecrets": ("name",),
    "ownerReferences": ("uid",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
}
PORT_KEYS = (("spec.ports", "port"), ("].ports", "containerPort"))  # of a Service, of a container; elsewhere one value


def hash_of(manifest: Body) -> str:
    """Hash a manifest without its own hash annotation: 16 hexadecimal digits, stable over key order."""
    bare = manifest
    if SPEC_HASH in manifest.get("metadata", {}).get("annotations", {}):
        others = {name: value for name, value in manifest["metadata"]["annotations"].items() if name != SPEC_HASH}
        bare = {**manifest, "metadata": {**manifest["metadata"], "annotations": others}}
    text = json.dumps(bare, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def stamped(manifest: Body) -> Body:
    """Give the manifest with the hash of its content in the annotation `spec-hash`; what it holds is shared, not copied."""
    meta = manifest["metadata"]
    annotations = {**meta.get("annotations", {}), SPEC_HASH: hash_of(manifest)}
    return {**manifest, "metadata": {**meta, "annotations": annotations}}


def difference(wanted: Body, live: Body) -> str | None:
    """Name the first field of `wanted` (a stamped manifest) whose live value differs, as a dotted path, or None."""
    return _compare(wanted, live, "")


def _compare(wanted: Any, live: Any, path: str) -> str | None:
    if wanted == live:
        return None  # nearly always, and told by the interpreter at once for all that is below
    if isinstance(wanted, Mapping):
        if not isinstance(live, Mapping):
            return None if not wanted and live is None else path
        for name, value in wanted.items():
            other = live.get(name)
            if value != other and (found := _compare(value, other, f"{path}.{name}" if path else name)):
                return found
        return None
    if isinstance(wanted, list):
        return _compare_list(wanted, live if live is not None else [], path)
    return None if _same(wanted, live) else path


def _compare_list(wanted: Sequence[Any], live: Any, path: str) -> str | None:
    if not isinstance(live, list):
        return path
    keys = _item_keys(path)
    if keys is None or not all(isinstance(item, Mapping) for item in [*wanted, *live]):
        if len(wanted) != len(live):
            return path
        pairs = enumerate(zip(wanted, live, strict=True))
        return next((found for i, (w, v) in pairs if (found := _compare(w, v, f"{path}[{i}]"))), None)
    by_key = {tuple(item.get(key) for key in keys): item for item in live}
    for item in wanted:
        key = tuple(item.get(name) for name in keys)
        place = f"{path}[{','.join(map(str, key))}]"
        if key not in by_key:
            return place
        found = _compare(item, by_key[key], place)
        if found:
            return found
    return None


def _item_keys(path: str) -> tuple[str, ...] | None:
    for ending, key in PORT_KEYS:
        if path == ending or (ending[0] == "]" and path.endswith(ending) and "ontainers[" in path):
            return (key,)
    return ITEM_KEYS.get(path.rpartition(".")[2])


def _same(wanted: Any, live: Any) -> bool:
    """Compare two leaves; the API server may write a quantity in another spelling (1000m as 1)."""
    if wanted == live or (live is None and wanted == ""):
        return True
    if isinstance(wanted, bool) or isinstance(live, bool):
        return False
    try:
        return Quantity(wanted).value == Quantity(live).value
    except (ValueError, ValidationError):
        return False

"""Hashes that say "the same": of the spec that children are rendered from, and of pods that can exchange KV state.

Both hash data in a canonical form, so they are equal over restarts, versions of Python and key order.
"""

import hashlib
import json
from typing import Any

from steelyard.api.service import InferenceService

LENGTH = 10


def digest(value: Any) -> str:
    """Hash plain data: ten hexadecimal digits, fit for a label value and the end of a name."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]


def spec_hash(service: InferenceService, wish: str = "") -> str:
    """Hash what the children depend on; `wish` is the value of the annotation that asks for a new rendering.

    Defaults are left out, so that a new field with a default in a later version changes no hash and rolls no pod.
    Bounds and autoscaling are left out too: they never reach a child.
    """
    spec = service.spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    spec.pop("autoscaling", None)
    for role in service.spec.roles:
        spec.get(role, {}).pop("replicas", None)
        if not spec.get(role, True):
            del spec[role]
    return digest({"spec": spec, "wish": wish})


def kv_group(service: InferenceService, engine_image: str) -> str:
    """Hash what two engines must share to exchange KV state: model, engine, version, context and number format.

    The accelerator is not part of it: the embedded engine's state does not depend on it, and a service may prefill on
    other hardware than it decodes on.
    """
    spec = service.spec
    return digest([spec.model.uri, spec.engine.name, engine_image, spec.model.context_length, "kv=f16"])

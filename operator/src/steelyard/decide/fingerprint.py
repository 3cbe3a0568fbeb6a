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
    Bounds and autoscaling are left out too, since they never reach a child, but for `roleChange` where engines are told whether
    they give or take KV: vLLM's that hand over by NIXL.
    """
    spec = service.spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    scaling = spec.pop("autoscaling", {})
    if "roleChange" in scaling and _told_their_roles(service):
        spec["autoscaling"] = {"roleChange": scaling["roleChange"]}
    for role in service.spec.roles:
        spec.get(role, {}).pop("replicas", None)
        if not spec.get(role, True):
            del spec[role]
    return digest({"spec": spec, "wish": wish})


def _told_their_roles(service: InferenceService) -> bool:
    """Whether `roleChange` reaches the engines' command lines (`build/engines/vllm_cache.py`)."""
    spec = service.spec
    return spec.engine.name == "vllm" and spec.connector == "nixl" and spec.topology == "Disaggregated"


def kv_group(service: InferenceService, engine_image: str) -> str:
    """Hash what two engines must share to exchange KV state: model, engine, version, context, and the cache's form.

    The accelerator and the parallelism are not part of it: state can be handed over between replicas that are spread
    differently (`decide/feasibility` knows where it cannot). What a role change needs beyond it is in `decide/scale/spec.py`.
    """
    spec = service.spec
    kv = spec.quantization_of(next(iter(spec.roles))).kv_cache
    form = [f"kv={'f16' if kv == 'auto' else kv}"]
    if spec.cache.block_tokens is not None:
        form.append(f"block={spec.cache.block_tokens}")
    if spec.connector != "http":
        form.append(f"by={spec.connector}")
    return digest([spec.model.uri, spec.engine.name, engine_image, spec.model.context_length, *form])

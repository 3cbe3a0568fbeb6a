"""Small valid objects for the operator's tests, to be changed field by field."""

from __future__ import annotations

import copy
from typing import Any

from steelyard.api.accelerator import Accelerator
from steelyard.api.service import InferenceService
from steelyard.catalog.accelerators import ACCELERATORS
from steelyard.decide.site import Site

Body = dict[str, Any]

SITE = Site(
    gateway_image="steelyard/gateway:1",
    engine_image="steelyard/engine:1",
    prometheus_namespace="monitoring",
    operator_namespace="steelyard-system",
    quantize_image="steelyard/quantize:1",
)
KNOWN: dict[str, Accelerator | None] = dict(ACCELERATORS)
SHAPE = {"parameters": 8_000_000_000, "layers": 32, "hiddenSize": 4096, "attentionHeads": 32, "kvHeads": 8}


def merged(base: Any, change: Any) -> Any:
    """Merge like a JSON merge patch: dictionaries by key, null removes, all else replaces."""
    if not isinstance(base, dict) or not isinstance(change, dict):
        return copy.deepcopy(change)
    result = copy.deepcopy(base)
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def service_body(spec: Body | None = None, **meta: Any) -> Body:
    """An InferenceService as the API server gives it, for the embedded engine on processors."""
    body: Body = {
        "apiVersion": "serving.steelyard.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": "chat", "namespace": "team-a", "uid": "uid-1", "generation": 1},
        "spec": {"model": {"uri": "oci://steelyard/model-smollm2:1", "servedName": "smollm2"}},
    }
    whole: Body = merged(body, {"spec": spec or {}, "metadata": meta})
    return whole


def service(spec: Body | None = None, **meta: Any) -> InferenceService:
    return InferenceService.read(service_body(spec, **meta))


def simulated(spec: Body | None = None) -> Body:
    """The part of a spec that makes the service a simulated one on an h200."""
    base = {
        "model": {"uri": "hf://org/model", "servedName": None, "shape": SHAPE},
        "engine": {"name": "simulated"},
        "accelerator": "h200",
    }
    whole: Body = merged(base, spec or {})
    return whole

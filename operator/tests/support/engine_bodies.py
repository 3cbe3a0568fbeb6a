"""Services of every engine, and the samples of the table of abilities laid over them."""

from __future__ import annotations

from typing import Any

from operator_bodies import KNOWN, SHAPE, SITE, merged, service
from steelyard.api.service import InferenceService
from steelyard.build.meta import Body
from steelyard.build.render import children
from steelyard.catalog.abilities import Setting

Spec = dict[str, Any]

GPU: Spec = {"model": {"uri": "hf://org/model@main", "servedName": None, "contextLength": 4096}, "accelerator": "h200"}
BASES: dict[str, Spec] = {
    "llama-cpp": {"model": {"contextLength": 4096}},
    "simulated": {
        "model": {"uri": "hf://org/model", "servedName": None, "contextLength": 4096, "shape": SHAPE},
        "engine": {"name": "simulated"},
        "accelerator": "h200",
    },
    "vllm": {**GPU, "engine": {"name": "vllm"}},
    "sglang": {**GPU, "engine": {"name": "sglang"}, "topology": "Aggregated"},
    "tensorrt-llm": {
        **GPU,
        "engine": {"name": "tensorrt-llm", "image": "mirror/tensorrt-llm:1.2.1"},
        "topology": "Aggregated",
    },
}


def with_sample(base: Spec, setting: Setting) -> Spec:
    """Lay a row's sample over a spec; the block of a role that the topology lacks goes to the one it has."""
    sample = dict(setting.sample)
    if base.get("topology") == "Aggregated" and "decode" in sample:
        sample["aggregated"] = sample.pop("decode")
    return dict(merged(base, sample))


def rendered(spec: Spec) -> str:
    """All children but for the names that follow from their content, as text to compare."""
    return repr([_without_hashes(child) for child in children(service(spec), KNOWN, SITE)])


def rendered_service(of: InferenceService) -> list[Body]:
    return children(of, KNOWN, SITE)


def _without_hashes(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_hashes(inner) for key, inner in value.items() if not key.endswith("/revision")}
    return [_without_hashes(inner) for inner in value] if isinstance(value, list) else value

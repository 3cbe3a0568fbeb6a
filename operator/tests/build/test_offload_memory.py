"""What a pod gives to offloaded keys and values is what was asked for, however many processes share it; and they share keys.

Engines mostly take the size for one process (LMCache, SGLang's HiCache, Mooncake's segments, TensorRT-LLM's host cache),
vLLM's own connector for one engine core. One number written for all of them once took several times the asked memory.
"""

from __future__ import annotations

import json
from math import ceil
from typing import Any

import pytest
import yaml
from engine_bodies import BASES, Spec
from operator_bodies import KNOWN, SITE, merged, service
from steelyard.api.service import InferenceService
from steelyard.build.engines import choose
from steelyard.build.engines.parts import Parts
from steelyard.build.render import children
from steelyard.decide.accept import refusals

GIB = 1 << 30
ASKED = 128 * GIB
STORE = {"lmcache": "lmcache:65432", "mooncake": "mooncake-master:50051"}
KINDS = {"vllm": ("cpu", "lmcache", "mooncake"), "sglang": ("cpu", "lmcache", "mooncake"), "tensorrt-llm": ("cpu",)}
CASES = [(engine, kind) for engine, kinds in KINDS.items() for kind in kinds]
# Ways, accelerator, and of one pod: processes, engine cores of vLLM (a half where a core spans two pods).
LAYOUTS: dict[str, tuple[dict[str, int], str, int, float]] = {
    "one": ({}, "h200", 1, 1),
    "tensor": ({"tensor": 4}, "h200", 4, 1),
    "pipeline": ({"tensor": 2, "pipeline": 2}, "h200", 4, 1),
    "data": ({"tensor": 2, "data": 2}, "h200", 4, 2),
    "two nodes": ({"tensor": 8, "pipeline": 2}, "h200", 8, 0.5),
}


def offloading(
    engine: str, kind: str, ways: dict[str, int], accelerator: str = "h200", spec: Spec | None = None
) -> InferenceService:
    offload = {"kind": kind, "memory": "128Gi", **({"address": STORE[kind]} if kind in STORE else {})}
    body = {"cache": {"offload": offload}, "parallelism": ways, "accelerator": accelerator}
    return service(merged(merged(BASES[engine], body), spec or {}))


def parts_of(of: InferenceService) -> Parts:
    role = next(iter(of.spec.roles))
    return choose.parts(of, role, KNOWN[of.spec.accelerator_of(role)], SITE)


def variables(parts: Parts) -> dict[str, Any]:
    return {variable["name"]: variable.get("value") for variable in parts.env}


def after(parts: Parts, flag: str) -> str:
    return parts.args[parts.args.index(flag) + 1]


def taken(engine: str, kind: str, parts: Parts, ranks: int, cores: float, tensor: int) -> float:
    """Bytes of one pod, by what each engine's own documentation says that the number means."""
    if engine == "tensorrt-llm":
        return float(yaml.safe_load(parts.settings["options.yaml"])["kv_cache_config"]["host_cache_size"] * ranks)
    if kind == "lmcache":
        return float(variables(parts)["LMCACHE_MAX_LOCAL_CPU_SIZE"]) * GIB * ranks
    if engine == "sglang":
        own = float(after(parts, "--hicache-size")) * 10**9 * ranks
        if kind == "cpu":
            return own
        store = json.loads(after(parts, "--hicache-storage-backend-extra-config"))
        return own + float(store["global_segment_size"]) / tensor * ranks
    if kind == "mooncake":
        return float(json.loads(parts.settings["mooncake.json"])["global_segment_size"] * ranks)
    config = json.loads(after(parts, "--kv-transfer-config"))
    connectors = config.get("kv_connector_extra_config", {}).get("connectors", [config])
    (own,) = (one for one in connectors if one["kv_connector"] == "OffloadingConnector")
    return float(own["kv_connector_extra_config"]["cpu_bytes_to_use"] * cores)


@pytest.mark.parametrize(
    ("engine", "kind", "layout"),
    [(*case, layout) for case in CASES for layout in LAYOUTS if (case[0], layout) != ("tensorrt-llm", "two nodes")],
)
def test_a_pod_gives_what_was_asked_for(engine: str, kind: str, layout: str) -> None:
    ways, accelerator, ranks, cores = LAYOUTS[layout]
    of = offloading(engine, kind, ways, accelerator)
    parts = parts_of(of)
    assert parts.extra_memory == ASKED, "the pod's request grows by what was asked for"
    coarse = ranks * 10**9 if engine == "sglang" and kind != "lmcache" else ranks * 2048
    assert ASKED - coarse <= taken(engine, kind, parts, ranks, cores, ways.get("tensor", 1)) <= ASKED + ranks * 2048


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_vllm_offloads_fits_its_shared_memory(layout: str) -> None:
    """It keeps all blocks of an engine core in one file of /dev/shm, and ends at its start where that is too small."""
    ways, accelerator, _, cores = LAYOUTS[layout]
    parts = parts_of(offloading("vllm", "cpu", ways, accelerator))
    config = json.loads(after(parts, "--kv-transfer-config"))
    (size,) = (
        one["kv_connector_extra_config"]["cpu_bytes_to_use"]
        for one in config["kv_connector_extra_config"]["connectors"]
        if one["kv_connector"] == "OffloadingConnector"
    )
    assert parts.shared_memory is not None
    assert parts.shared_memory.whole >= size * ceil(cores) + GIB * (1 + parts.accelerators)


@pytest.mark.parametrize(
    ("engine", "kind"), [("vllm", "lmcache"), ("vllm", "mooncake"), ("vllm", "pegaflow"), ("sglang", "lmcache")]
)
def test_processes_that_share_blocks_name_them_alike(engine: str, kind: str) -> None:
    """LMCache's keys are Python's own hash() by default: with a seed of its own each process misses what others stored."""
    of = (
        offloading(engine, kind, {})
        if kind != "pegaflow"
        else service(merged(BASES[engine], {"cache": {"offload": {"kind": kind}}}))
    )
    assert refusals(of, KNOWN) == ()
    assert variables(parts_of(of))["PYTHONHASHSEED"] == "0"


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_seed_that_the_user_writes_counts(engine: str) -> None:
    """Of two variables of one name Kubernetes takes the later."""
    seed = {"name": engine, "env": [{"name": "PYTHONHASHSEED", "value": "7"}]}
    of = offloading(engine, "lmcache", {}, spec={"engine": seed})
    assert refusals(of, KNOWN) == ()
    pods = [child["spec"]["template"]["spec"] for child in children(of, KNOWN, SITE) if child["kind"] == "Deployment"]
    seeds = [
        [variable["value"] for variable in pod["containers"][0]["env"] if variable["name"] == "PYTHONHASHSEED"]
        for pod in pods
        if pod["containers"][0]["name"] == "engine"
    ]
    assert seeds
    assert all(found[-1] == "7" for found in seeds)


def test_nothing_is_seeded_where_nothing_is_shared() -> None:
    assert "PYTHONHASHSEED" not in variables(parts_of(service(BASES["vllm"])))

"""SGLang and TensorRT-LLM with much set at once: what is rendered, as files to read, and names that TensorRT-LLM knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from engine_bodies import BASES, with_sample
from operator_bodies import KNOWN, SITE, merged, service
from steelyard.build.engines import choose
from steelyard.build.engines.tensorrt_llm import options
from steelyard.catalog.abilities import ABILITIES
from steelyard.decide import pod_memory
from steelyard.decide.accept import refusals
from syrupy.assertion import SnapshotAssertion

NAMES = yaml.safe_load((Path(__file__).parent / "data" / "tensorrt_llm_options.yaml").read_text())
MUCH: dict[str, Any] = {
    "model": {"credentials": {"secretName": "hub"}, "shape": {"parameters": 8_000_000_000, "experts": 8}},
    "engine": {"memoryUtilization": 0.85, "args": ["--log-level", "info"]},
    "quantization": {"weights": "fp8", "kvCache": "fp8"},
    "parallelism": {"tensor": 2, "data": 2, "expert": True},
    "batching": {"maxSequences": 64, "maxBatchTokens": 4096},
    "cache": {
        "prefixReuse": False,
        "blockTokens": 64,
        "kvTokens": 500_000,
        "offload": {"kind": "cpu", "memory": "32Gi"},
    },
    "speculation": {"method": "eagle3", "model": "org/head", "tokens": 4},
    "aggregated": {"resources": {"requests": {"memory": "32Gi"}, "limits": {"memory": "64Gi"}}},
    "rollout": {"maxUnavailable": 1, "maxSurge": "50%"},
}


@pytest.mark.parametrize("engine", ["sglang", "tensorrt-llm"])
def test_golden(engine: str, snapshot: SnapshotAssertion) -> None:
    of = service(merged(BASES[engine], MUCH))
    parts = choose.parts(of, "aggregated", KNOWN["h200"], SITE)
    settings = {name: text for name, text in parts.settings.items() if name != "drain.py"}
    assert {"command": parts.command, "args": parts.args, "env": parts.env, "files": settings} == snapshot


def test_tensorrt_llm_is_given_only_options_that_it_knows() -> None:
    """Its types refuse an unknown option and the server would not start."""
    seen = set()
    for row in ABILITIES:
        of = service(with_sample(BASES["tensorrt-llm"], row))
        if refusals(of, KNOWN):
            continue
        found = options(of, "aggregated", pod_memory.spread(of, "aggregated", KNOWN["h200"]))
        seen |= set(found)
        assert set(found) <= set(NAMES["options"])
        assert set(found["kv_cache_config"]) <= set(NAMES["kv_cache_config"])
        if wish := found.get("speculative_config"):
            assert set(wish) <= set(NAMES["speculative_config"][wish["decoding_type"]])
    assert {"speculative_config", "batch_wait_timeout_ms", "enable_attention_dp"} <= seen

"""How long a start may take, by the bytes that it has to bring: from a hub slower than from a volume."""

from __future__ import annotations

from typing import Any

import pytest
from engine_bodies import BASES
from operator_bodies import merged, service
from steelyard.build.engines.accelerated import UNKNOWN_START_SECONDS, startup_seconds

BASE = 600
QWEN = "hf://Qwen/Qwen3-32B"
HUB, VOLUME = 50e6, 200e6  # bytes a second
PARAMETERS = 32.8e9
CASES: list[tuple[str, dict[str, Any], float]] = [
    ("a known model from a hub", {"model": {"uri": QWEN}}, PARAMETERS * 2 / HUB),
    ("its size written", {"model": {"uri": QWEN, "shape": {"parameters": 32_800_000_000}}}, PARAMETERS * 2 / HUB),
    ("in eight bits, as its name tells", {"model": {"uri": f"{QWEN}-FP8"}}, PARAMETERS / HUB),
    ("made eight bits while loading", {"model": {"uri": QWEN}, "quantization": {"source": "Load", "weights": "fp8"}},
     PARAMETERS * 2 / HUB),
    ("from a cache that is filled before", {"model": {"uri": QWEN, "cache": {"kind": "claim", "claim": "models"}}},
     PARAMETERS * 2 / VOLUME),
    ("from a claim, its size written", {"model": {"uri": "pvc://models/a", "shape": {"parameters": 32_800_000_000}}},
     PARAMETERS * 2 / VOLUME),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "reading"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_start_may_take_what_its_bytes_take(spec: dict[str, Any], reading: float) -> None:
    found = startup_seconds(service(merged(BASES["vllm"], spec)), "decode")
    assert found == pytest.approx(BASE + reading, rel=0.02)


@pytest.mark.parametrize("uri", ["hf://org/nobody-knows", "pvc://models/a"])
def test_a_model_of_unknown_size_gets_an_hour(uri: str) -> None:
    assert startup_seconds(service(merged(BASES["vllm"], {"model": {"uri": uri}})), "decode") == UNKNOWN_START_SECONDS

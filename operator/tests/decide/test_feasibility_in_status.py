"""What feasibility finds, as users see it: refusals and notes in Accepted, bounds in ObjectivesFeasible, memory in status."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from operator_bodies import KNOWN, service, service_body, simulated
from steelyard.api.reasons import Reason
from steelyard.decide.accept import message, refusals
from steelyard.decide.plan import plan
from steelyard.decide.snapshot import Snapshot
from steelyard.decide.status import status

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def told(spec: dict[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, str]]]:
    snapshot = Snapshot(service=service_body(spec), accelerators=KNOWN)
    found = status(snapshot, plan(snapshot), None, NOW)
    return found, {condition["type"]: condition for condition in found["conditions"]}


def vllm(**spec: Any) -> dict[str, Any]:
    return {
        "engine": {"name": "vllm"},
        "accelerator": "h100",
        "model": {"uri": "hf://Qwen/Qwen3-32B", "servedName": None},
        **spec,
    }


def test_what_does_not_fit_is_refused_with_the_nearest_setting() -> None:
    found, conditions = told(vllm(model={"uri": "hf://meta-llama/Llama-3.1-70B-Instruct", "servedName": None}))
    assert (conditions["Accepted"]["status"], conditions["Accepted"]["reason"]) == ("False", "DoesNotFit")
    assert "141 GB of weights" in conditions["Accepted"]["message"]
    assert "set spec.parallelism.tensor to 2" in conditions["Accepted"]["message"]
    assert "memory" not in found


def test_memory_by_part() -> None:
    found, conditions = told(vllm(model={"uri": "hf://Qwen/Qwen3-32B", "servedName": None, "contextLength": 4096}))
    assert conditions["Accepted"]["message"] == "the spec can be served"
    memory = found["memory"]
    assert (memory["weights"], memory["available"]) == ("61Gi", "72Gi")
    assert memory["sequences"] * 4096 <= memory["tokens"] < (memory["sequences"] + 1) * 4096
    assert memory["tokens"] * 262_144 <= float(memory["kvCache"].removesuffix("Gi")) * 1.01 * 2**30


def test_what_is_no_refusal_is_a_note() -> None:
    _, conditions = told(vllm(accelerator="a100", model={"uri": "hf://Qwen/Qwen3-32B-FP8", "servedName": None}))
    assert conditions["Accepted"]["status"] == "True"
    assert conditions["Accepted"]["message"].startswith(
        "the spec can be served; note: spec.quantization.weights: auto (fp8):"
    )


@pytest.mark.parametrize(
    ("engine", "version", "mode", "replicas", "noted", "because"),
    [
        (
            "tensorrt-llm",
            "1.2.1",
            "Auto",
            {"min": 1, "max": 4},
            True,
            "its load cannot be read: nothing would ever be scaled",
        ),
        ("tensorrt-llm", "1.2.1", "Recommend", {"min": 1, "max": 4}, True, "nor recommended"),
        ("tensorrt-llm", "1.2.1", "Off", {"min": 1, "max": 4}, False, "another autoscaler rules"),
        ("tensorrt-llm", "1.2.1", "Auto", {"min": 2}, False, "the default: no room to scale, nothing to tell"),
        ("tensorrt-llm", "1.3.0", "Auto", {"min": 1, "max": 4}, False, "that version tells it"),
        ("tensorrt-llm", "ours", "Auto", {"min": 1, "max": 4}, True, "nobody knows which version that is"),
        ("vllm", "1.2.1", "Auto", {"min": 1, "max": 4}, False, "measured"),
    ],
)
def test_an_engine_that_is_not_measured_is_not_scaled_and_that_is_told(
    engine: str, version: str, mode: str, replicas: dict[str, int], noted: bool, because: str
) -> None:
    asked = vllm(
        engine={"name": engine, "image": f"mirror/{engine}:{version}"},
        topology="Aggregated",
        prefill=None,
        decode=None,
        aggregated={"replicas": replicas},
        autoscaling={"mode": mode},
    )
    _, conditions = told(asked)
    assert conditions["Accepted"]["status"] == "True", "a note, no refusal"
    note = f"note: spec.autoscaling.mode: {mode}: engine {engine} tells its load from version 1.3 on"
    assert (note in conditions["Accepted"]["message"]) is noted, because
    assert ("spec.aggregated.replicas.initial" in conditions["Accepted"]["message"]) is noted


def test_a_rehearsal_says_where_the_real_engine_would_not_start() -> None:
    _, conditions = told(simulated({"accelerator": "h100", "model": {"shape": {"parameters": 70_000_000_000}}}))
    assert conditions["Accepted"]["status"] == "True"
    assert "the real engine would not start" in conditions["Accepted"]["message"]


def test_bounds_are_told_with_what_can_be_reached() -> None:
    _, conditions = told(simulated({"objectives": {"timeToFirstToken": "100ms", "timePerOutputToken": "50ms"}}))
    assert "prompts of up to" in conditions["ObjectivesFeasible"]["message"]
    _, conditions = told(simulated({"objectives": {"timePerOutputToken": "3ms"}}))
    assert (
        "spec.objectives.timePerOutputToken: 3ms: h200 with TP1 needs at least"
        in conditions["ObjectivesFeasible"]["message"]
    )


def test_a_setting_is_refused_for_one_reason() -> None:
    """Where the engine's own list refuses a setting, what the hardware says of it is not told again."""
    given = service(vllm(quantization={"kvCache": "kivi-2"}))
    found = refusals(given, KNOWN)
    assert len([refusal for refusal in found if refusal.value == "kivi-2"]) == 1, message(found)


def test_reasons_are_the_checks_own() -> None:
    found = refusals(
        service(vllm(prefill={"parallelism": {"tensor": 4}}, decode={"parallelism": {"tensor": 2}})), KNOWN
    )
    assert [refusal.reason for refusal in found] == [Reason.ROLES_INCOMPATIBLE]

"""Settings: what is accepted, and what is refused with the field's name."""

import json
from typing import Any

import msgspec
import pytest
from steelyard.decide.queue.dispatch import Order
from steelyard.gateway.pods import KubernetesPod, Pod, PodsError, from_kubernetes, parse_pods_file
from steelyard.gateway.settings import SettingsError, parse_settings

LEAST: dict[str, Any] = {"service": "chat", "namespace": "team-a", "servedName": "smollm2"}
FULL: dict[str, Any] = {
    **LEAST,
    "topology": "Disaggregated",
    "objectives": {"ttftSeconds": 0.5, "tpotSeconds": 0.05},
    "order": "fcfs",
    "affinity": "none",
    "limits": {"concurrent": 1000, "bodyBytes": 4194304, "shedWhenLate": False},
    "requestTimeoutSeconds": 600,
    "stallTimeoutSeconds": 60,
    "gateways": 2,
    "prefillPrior": {"a": 0.02, "b": 0.002, "c": 0.0},
    "handoffSeconds": 0.05,
    "decodeSlots": 7,
    "contextLength": 2048,
    "apiKeysFile": None,
}


def test_all_documented_fields_are_taken() -> None:
    settings = parse_settings(json.dumps(FULL).encode())
    assert settings.order is Order.FCFS
    assert settings.ttft_budget == pytest.approx(0.45)
    assert settings.slots_here == 4, "shared by the gateways, rounded up"
    assert (settings.prior.b, settings.judged_by.tpot_seconds) == (0.002, 0.05)


@pytest.mark.parametrize(
    ("topology", "decided", "held", "because"),
    [
        ("Disaggregated", 3, 3, "the autoscaler has found fewer right"),
        ("Disaggregated", 9, 7, "the settings are never passed"),
        ("Aggregated", 3, 7, "the number is of decode replicas, left from before the topology changed"),
    ],
)
def test_what_the_autoscaler_decided_limits_decode_replicas_only(
    topology: str, decided: int, held: int, because: str
) -> None:
    settings = parse_settings(json.dumps({**FULL, "topology": topology}).encode())
    assert settings.limited_to(decided).decode_slots == held, because


def test_what_is_left_out_has_a_default() -> None:
    settings = parse_settings(json.dumps(LEAST).encode())
    assert settings.ttft_budget is None
    assert settings.order is Order.SHORTEST_FIRST


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"servedname": "x"}, "servedname"),
        ({"limits": {"concurent": 5}}, r"concurent.*limits"),
        ({"order": "random"}, r"random.*order"),
        ({"topology": "Both"}, r"Both.*topology"),
        ({"servedName": ""}, "servedName is empty"),
        ({"gateways": 0}, "gateways is 0, and must be at least 1"),
        ({"decodeSlots": -1}, "decodeSlots is -1"),
        ({"objectives": {"ttftSeconds": 0}}, r"objectives\.ttftSeconds is 0"),
        ({"objectives": {"tpotSeconds": "50ms"}}, r"objectives\.tpotSeconds"),
        ({"prefillPrior": {"a": -1, "b": 0, "c": 0}}, r"prefillPrior\.a is -1"),
        ({"limits": {"bodyBytes": 0}}, r"limits\.bodyBytes is 0"),
    ],
)
def test_refusals_name_the_field(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        parse_settings(json.dumps({**FULL, **change}).encode())


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "pods file"), ('[{"name":"a"}]', "address"), ('[{"name":"a","address":"x","role":"both"}]', "role of a is 'both'"),
     ('[{"name":"a","address":"x","port":65536}]', "65535"), ('[{"name":"a","address":"x","port":0}]', ">= 1"),
     ('[{"name":"a","address":"x","zone":"b"}]', "zone")],
)  # fmt: skip
def test_pods_that_cannot_be_right(text: str, message: str) -> None:
    with pytest.raises(PodsError, match=message):
        parse_pods_file(text.encode())


def kubernetes_pod(labels: dict[str, str] | None = None, **changes: Any) -> KubernetesPod:
    ours = {"serving.steelyard.dev/role": "decode", "serving.steelyard.dev/kv-group": "g1"}
    metadata = {"name": "p", "labels": ours if labels is None else labels, "resourceVersion": "7", "uid": "u"}
    status = {"podIP": "10.0.0.7", "conditions": [{"type": "Ready", "status": "True", "reason": "x"}]}
    whole = {
        "metadata": {**metadata, **changes.get("metadata", {})},
        "status": {**status, **changes.get("status", {})},
        "spec": {"containers": []},
    }
    return msgspec.convert(whole, KubernetesPod)


READY = Pod("p", "10.0.0.7", 8000, "decode", "g1", True)
NOT_READY = Pod("p", "10.0.0.7", 8000, "decode", "g1", False)


@pytest.mark.parametrize(
    ("because", "changes", "expected"),
    [
        ("ready", {}, READY),
        ("E03: running but not ready", {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, NOT_READY),
        ("no conditions yet", {"status": {"conditions": None}}, NOT_READY),
        ("being deleted", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, NOT_READY),
        ("no address yet", {"status": {"podIP": None}}, None),
        ("its role label was taken away", {"labels": {}}, None),
        ("an unknown role", {"labels": {"serving.steelyard.dev/role": "both"}}, None),
    ],
)
def test_pods_of_the_api_server(because: str, changes: dict[str, Any], expected: Pod | None) -> None:
    assert from_kubernetes(kubernetes_pod(**changes)) == expected, because


def test_e05_a_pod_that_came_back_elsewhere_is_another_pod() -> None:
    """vllm-project/production-stack#471: discovery by address goes stale when a pod is re-created."""
    assert Pod("decode-0", "10.0.0.1").identity != Pod("decode-0", "10.0.0.2").identity

"""`steelyard explain` on statuses that were recorded from a cluster, and on the ones that a cluster rarely shows."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from operator_bodies import merged, service_body, simulated
from rich.console import Console
from steelyard.cli.explain import layout
from steelyard.cli.explanation import explain
from steelyard.cli.main import app
from typer.testing import CliRunner

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
RECORDED = sorted((Path(__file__).parent / "recorded").glob("*.json"))
SPEC = simulated(
    {
        "objectives": {"timeToFirstToken": "500ms"},
        "prefill": {"replicas": {"min": 1, "max": 4}},
        "autoscaling": {"mode": "Auto", "budget": {"accelerators": 5}},
    }
)


def at(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).isoformat()


STATUS: dict[str, Any] = {
    "ratio": "2:1",
    "prefill": {"desired": 3, "ready": 2, "starting": 1, "draining": 0},
    "decode": {"desired": 1, "ready": 1, "starting": 0, "draining": 0},
    "objectives": {"attainment": 93.5, "timeToFirstToken": {"attainment": 93.5, "p95": "610ms"}},
    "decision": {
        "time": at(12),
        "action": "prefill 2→3",
        "because": ["9000 uncached tokens/s need 2.6 prefill replicas", "decode fills 0.20 replicas"],
        "limitedBy": "None",
        "applied": True,
        "prefill": 3,
        "decode": 1,
    },
    "history": [{"time": at(12), "action": "prefill 2→3"}, {"time": at(700), "action": "prefill 1→2"}],
    "conditions": [
        {"type": "MetricsFresh", "status": "True", "message": "every ready engine is measured"},
        {"type": "ScalingLimited", "status": "True", "message": "said of the limit"},
    ],
}


def shown(status: dict[str, Any] | None = None, spec: dict[str, Any] | None = None) -> str:
    body = service_body(merged(SPEC, spec or {})) | {"status": merged(STATUS, status or {})}
    return printed(body, NOW)


def printed(body: dict[str, Any], now: datetime) -> str:
    out = StringIO()
    Console(file=out, width=160).print(layout(explain(body, now)))
    return out.getvalue()


def test_the_whole_picture() -> None:
    text = shown()
    for part in (
        "team-a/chat · mode Auto · ratio 2:1",
        "93.5 % met TTFT 500ms for 95 % of requests over 5m (TTFT p95 610ms)",
        "prefill 3, decode 1 (decided 12 s ago: prefill 2→3)",
        "· 9000 uncached tokens/s need 2.6 prefill replicas",
        "nothing",
        "more replicas as soon as the first term asks for more: 9000 uncached tokens/s",
        "12 min ago  prefill 1→2",
    ):
        assert part in text
    row = next(line for line in text.splitlines() if line.strip().startswith("prefill  "))
    assert row.split() == ["prefill", "2", "1", "0", "3", "1…4"]


@pytest.mark.parametrize(
    ("limit", "limited", "change"),
    [
        ("Budget", "Budget: said of the limit", "a larger spec.autoscaling.budget (accelerators 5)"),
        ("Max", "Max: said of the limit", "spec.prefill.replicas.max (4)"),
        ("Ratio", "Ratio: said of the limit", "wider bounds in spec.autoscaling.ratio (none set)"),
        ("Min", "a role's minimum", "a smaller spec.<role>.replicas.min"),
        ("MetricsStale", "MetricsStale: said of the limit", "measurements of every replica"),
        ("UnknownCost", "UnknownCost: said", "spec.pricePerHour of the Accelerator"),
        ("Unschedulable", "Unschedulable: said", "nodes with a free accelerator"),
        ("StartFailing", "StartFailing: said", "replicas that start"),
    ],
)
def test_every_limit_has_its_remedy(limit: str, limited: str, change: str) -> None:
    text = shown({"decision": {"limitedBy": limit}})
    assert limited in text
    assert change in text


def test_lost_metrics_are_told_in_the_words_of_their_condition() -> None:
    lost = [{"type": "MetricsFresh", "status": "False", "message": "Prometheus is away"}]
    assert "MetricsStale: Prometheus is away" in shown({"decision": {"limitedBy": "MetricsStale"}, "conditions": lost})


def test_a_recommendation_is_told_as_one() -> None:
    text = shown({"decision": {"applied": False}}, {"autoscaling": {"mode": "Recommend"}})
    assert "prefill 2→3, not carried out" in text
    assert "spec.autoscaling.mode: Auto would carry the decision out" in text


@pytest.mark.parametrize(("mode", "says"), [("Off", "`kubectl scale`"), ("Auto", "value prometheus.url")])
def test_without_a_decision_it_says_what_one_would_need(mode: str, says: str) -> None:
    text = shown({"decision": None, "history": None}, {"autoscaling": {"mode": mode}})
    assert "no decision" in text
    assert says in text


def test_a_service_that_was_just_made_has_an_explanation_too() -> None:
    text = printed(service_body(), NOW)
    assert "no latency objective is set" in text
    assert "no decision" in text


@pytest.mark.parametrize("file", RECORDED, ids=lambda path: path.stem)
def test_recorded_statuses(file: Path) -> None:
    body = json.loads(file.read_text())
    decision = body["status"].get("decision") or {}
    now = datetime.fromisoformat(decision["time"]) + timedelta(seconds=3) if decision else NOW
    text = printed(body, now)
    assert f"mode {body['spec']['autoscaling']['mode']}" in text
    for sentence in decision.get("because", ()):
        assert sentence in text
    for earlier in body["status"].get("history") or ():
        assert earlier["action"] in text


def test_there_are_recorded_statuses() -> None:
    assert len(RECORDED) >= 6


def test_no_cluster_is_told_in_one_line(tmp_path: Path) -> None:
    nowhere = tmp_path / "kubeconfig"
    nowhere.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{name: x, cluster: {server: 'http://127.0.0.1:1'}}]\n"
        "contexts: [{name: x, context: {cluster: x, user: x}}]\nusers: [{name: x, user: {}}]\n"
    )
    done = CliRunner().invoke(app, ["explain", "chat", "-n", "team-a", "--kubeconfig", str(nowhere)])
    assert done.exit_code == 2
    assert "the API server cannot be asked" in done.output
    missing = CliRunner().invoke(app, ["explain", "chat", "--kubeconfig", str(tmp_path / "none")])
    assert missing.exit_code == 2

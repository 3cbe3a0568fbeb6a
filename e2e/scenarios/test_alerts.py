"""When each alert fires, and when it does not: the chart's rules evaluated by Prometheus' own `promtool`.

No cluster is needed, only the program, which `make test` builds. That the figures exist on a live service, and that a live
Prometheus takes the rules and answers the dashboards, is shown by `test_autoscaler.py`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from charts.boards import BOARDS
from e2e.cache import REPOSITORY
from e2e.cluster import build
from e2e.cluster.programs import PROMTOOL

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]  # the first time the program is built

RULES = REPOSITORY / "charts" / "steelyard" / "rules" / "steelyard.yaml"
EVERY = [
    rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"] if "alert" in rule
]
SERVICE = {"namespace": "a", "service": "chat"}
Series = dict[str, str]


@pytest.fixture(scope="session")
def promtool() -> Path:
    return build.ensure(Console(file=sys.__stderr__), [PROMTOOL])[PROMTOOL.name]


def of(metric: str, **labels: str) -> str:
    """A series of the service."""
    return metric + "{" + ", ".join(f'{name}="{value}"' for name, value in {**SERVICE, **labels}.items()) + "}"


def condition(kind: str, reason: str, values: str) -> Series:
    return {of("steelyard_condition", type=kind, reason=reason): values}


def judged(met: str, missed: str, asked: float = 0.95) -> Series:
    """Requests that ended, counted each minute, and the share that the spec asks for."""
    ended = {"outcome": "completed", "tpot_met": "true", "length_class": "short", "pod": "g-0"}
    return {
        of("steelyard_gateway_requests_total", ttft_met="true", **ended): met,
        of("steelyard_gateway_requests_total", ttft_met="false", **ended): missed,
        of("steelyard_objective_attainment_ratio"): f"{asked}x800",
    }


def outcomes(**counts: str) -> Series:
    return {of("steelyard_gateway_requests_total", outcome=name, pod="g-0"): values for name, values in counts.items()}


def leading(*replicas: str, namespace: str = "steelyard-system") -> Series:
    """What operators say of the lease, by replica."""
    return {f'steelyard_leading{{namespace="{namespace}", pod="o-{n}"}}': values for n, values in enumerate(replicas)}


def ticks(in_time: str, late: str, interval: int = 5) -> Series:
    """Ticks that took up to 5 s, and up to 10 s in all."""
    counts = {"5": in_time, "10": late, "+Inf": late}
    found = {
        f'steelyard_tick_seconds_bucket{{namespace="s", le="{bound}"}}': values for bound, values in counts.items()
    }
    return found | {'steelyard_tick_interval_seconds{namespace="s"}': f"{interval}x60"}


COMPLETED = outcomes(completed="0+60x60")
SERVED = condition("Available", "Serving", "1 1 stale")
FAST, SLOW = "SteelyardObjectiveBurnFast", "SteelyardObjectiveBurnSlow"
GONE, DOES_NOT_START = "SteelyardServiceUnavailable", "SteelyardReplicasDoNotStart"
ROWS: tuple[tuple[str, Series, str, bool, str], ...] = (
    (FAST, judged("0+60x120", "0+40x120"), "90m", True, "40 % missed where 5 % may be"),
    (FAST, judged("0+80x120", "0+20x120"), "90m", False, "20 % are four times what may be missed"),
    (FAST, judged("0+100x84 8400+60x36", "0+0x84 0+40x36"), "90m", False, "bad for five minutes, good for an hour"),
    (FAST, judged("0+60x60 3600+100x60", "0+40x60 2400+0x60"), "90m", False, "it is over"),
    (FAST, judged("0+0.05x120", "0+0.1x120"), "90m", False, "nine requests in an hour"),
    (FAST, judged("0+60x120", "0+40x120", asked=0.8), "90m", False, "40 % missed where 20 % may be is not half"),
    (FAST, judged("0+40x120", "0+60x120", asked=0.8), "90m", True, "more than half missed, whatever may be"),
    (FAST, judged("0+0x120", "0+40x120"), "90m", True, "all missed"),
    (FAST, {of("steelyard_objective_attainment_ratio"): "0.95x120"}, "90m", False, "no request at all"),
    (SLOW, judged("0+85x500", "0+15x500"), "7h", True, "15 % missed where 5 % may be, for six hours"),
    (SLOW, judged("0+92x500", "0+8x500"), "7h", False, "8 % are less than twice what may be missed"),
    (SLOW, judged("0+85x300 25500+100x200", "0+15x300 4500+0x200"), "7h", False, "it is over"),
    (GONE, SERVED | condition("Available", "PrefillNotReady", "_ _ 0x30"), "5m", True, "for two minutes"),
    (GONE, SERVED | condition("Available", "PrefillNotReady", "_ _ 0x30"), "30m", True, "and for as long as it lasts"),
    (GONE, condition("Available", "PrefillNotReady", "0x10"), "5m", False, "a first start takes its time"),
    (GONE, condition("Available", "NotAccepted", "0x10"), "5m", False, "a spec that was never accepted"),
    (GONE, condition("Available", "Serving", "1 stale 1 stale 1")
     | condition("Available", "PrefillNotReady", "_ 0 stale 0 stale"), "4m", False, "now and then"),
    (GONE, SERVED | condition("Available", "PrefillNotReady", "_ _ 0 stale") | condition("Available", "GatewayNotReady",
     "_ _ _ 0x8"), "5m", True, "the reason changes, the state does not"),
    ("SteelyardRequestsFailing", outcomes(completed="0+60x30", failed="0+1x30"), "15m", True, "1.6 %"),
    ("SteelyardRequestsFailing", outcomes(completed="0+600x30", failed="0+1x30"), "15m", False, "1.7 in a thousand"),
    ("SteelyardRequestsFailing", outcomes(completed="0+60x30", cancelled="0+30x30"), "15m", False, "clients went"),
    ("SteelyardGatewayDown", {of("up", component="gateway", pod=p): "0x10" for p in ("g-0", "g-1")}, "3m", True, "both"),
    (
        "SteelyardGatewayDown",
        {of("up", component="gateway", pod="g-0"): "0x10", of("up", component="gateway", pod="g-1"): "1x10"},
        "3m",
        False,
        "one of two",
    ),
    ("SteelyardScalingBounded", condition("ScalingLimited", "MaximumReached", "1x60"), "31m", True, "for half an hour"),
    ("SteelyardScalingBounded", condition("ScalingLimited", "MaximumReached", "1x20 0x40"), "31m", False, "a burst"),
    ("SteelyardScalingBounded", condition("ScalingLimited", "BudgetReached", "1x60"), "31m", False, "another alert's"),
    ("SteelyardBudgetReached", condition("ScalingLimited", "BudgetReached", "1x60"), "31m", True, "for half an hour"),
    ("SteelyardBudgetReached", condition("ScalingLimited", "NotLimited", "0x60"), "31m", False, "not limited"),
    ("SteelyardNoRoom", condition("ScalingLimited", "Unschedulable", "1x60"), "11m", True, "for ten minutes"),
    ("SteelyardNoRoom", condition("ScalingLimited", "Unschedulable", "1x4 _ 1x4 _ 1x9"), "14m", True, "tried in between"),
    ("SteelyardNoRoom", condition("ScalingLimited", "Unschedulable", "1x5 _x60"), "11m", False, "room was found"),
    (DOES_NOT_START, condition("Progressing", "EngineCrashing", "0x10"), "6m", True, "crashing"),
    (DOES_NOT_START, condition("Progressing", "ImageUnavailable", "1x10"), "6m", True, "no image, while it goes on trying"),
    (DOES_NOT_START, condition("ScalingLimited", "StartFailing", "1x10"), "6m", True, "given up"),
    (DOES_NOT_START, condition("Progressing", "ReplicasStarting", "1x60"), "30m", False, "a long start is no failed one"),
    ("SteelyardWeightsUnavailable", condition("ModelReady", "WeightsUnavailable", "0x10"), "6m", True, "no weights"),
    ("SteelyardWeightsUnavailable", condition("ModelReady", "WeightsLoading", "0x60"), "30m", False, "they are coming"),
    ("SteelyardRolloutPaused", condition("Progressing", "RolloutPaused", "0x20"), "11m", True, "for ten minutes"),
    ("SteelyardRolloutPaused", condition("Progressing", "RollingOut", "1x60"), "30m", False, "it goes on"),
    ("SteelyardSpecRefused", condition("Accepted", "DoesNotFit", "0x20"), "16m", True, "for a quarter of an hour"),
    ("SteelyardSpecRefused", condition("Accepted", "DoesNotFit", "0x8 _x20"), "16m", False, "it was corrected"),
    ("SteelyardMetricsLost", condition("MetricsFresh", "PrometheusUnreachable", "0x10"), "6m", True, "unreachable"),
    ("SteelyardMetricsLost", condition("MetricsFresh", "DegradedInterval", "1x10"), "6m", False, "slow is not lost"),
    (
        "SteelyardKVTransferFailing",
        COMPLETED | {of("steelyard_gateway_recomputed_total"): "0+2x60", of("steelyard_gateway_handoffs_missing_total"): "0+2x60"},
        "25m",
        True,
        "four in sixty",
    ),
    (
        "SteelyardKVTransferFailing",
        COMPLETED | {of("steelyard_gateway_recomputed_total"): "0+2x60", of("steelyard_gateway_handoffs_missing_total"): "0x60"},
        "25m",
        False,
        "two in sixty",
    ),
    ("SteelyardKVExpired", COMPLETED | {of("steelyard_engine_kv_expired_total", pod="p-0"): "0+1x60"}, "25m", True, "1.7 %"),
    ("SteelyardKVExpired", COMPLETED | {of("steelyard_engine_kv_expired_total", pod="p-0"): "0x60"}, "25m", False, "none"),
    (
        "SteelyardPreemptionStorm",
        {of("vllm:num_preemptions_total", pod="d-0"): "0+10x60", of("vllm:request_success_total", pod="d-0"): "0+60x60"},
        "25m",
        True,
        "one for six that end",
    ),
    (
        "SteelyardPreemptionStorm",
        {of("vllm:num_preemptions_total", pod="d-0"): "0+1x60", of("vllm:request_success_total", pod="d-0"): "0+60x60"},
        "25m",
        False,
        "now and then",
    ),
    ("SteelyardOperatorDown", {}, "4m", True, "nothing is scraped of it"),
    ("SteelyardOperatorDown", leading("1x5 0x30", "0x35"), "10m", True, "nobody does any more"),
    ("SteelyardOperatorDown", leading("1x5 0x30", "0x5 1x30"), "10m", False, "the other one does"),
    ("SteelyardOperatorDown", leading("1x5 stale") | leading("1x90", namespace="other"), "10m", True, "another release leads"),
    ("SteelyardOperatorDown", leading("1x5 stale") | leading("1x90", namespace="other"), "80m", False, "long ago: it was removed"),
    ("SteelyardReconcileErrors", {'steelyard_reconcile_total{result="failed"}': "0+2x60"}, "25m", True, "two a minute"),
    ("SteelyardReconcileErrors", {'steelyard_reconcile_total{result="failed"}': "0 3 3x60"}, "25m", False, "three, once"),
    ("SteelyardTicksLate", ticks("0+5x60", "0+10x60"), "25m", True, "half of them take longer"),
    ("SteelyardTicksLate", ticks("0+10x60", "0+10x60"), "25m", False, "none does"),
    ("SteelyardTicksLate", ticks("0+5x60", "0+10x60", interval=10), "25m", False, "there is time for it"),
)  # fmt: skip


def test_every_alert_is_fired_and_kept_quiet() -> None:
    for fires in (True, False):
        assert {row[0] for row in ROWS if row[3] is fires} == set(EVERY)


def test_alerts_fire_when_they_should(promtool: Path, tmp_path: Path) -> None:
    """All rows in one run of the program; it names each that is not so by its words."""
    tests = [
        {
            "name": f"{alert}: {because}",
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in given.items()],
            "promql_expr_test": [
                {
                    "expr": f'count(ALERTS{{alertname="{alert}", alertstate="firing"}}) or vector(0)',
                    "eval_time": at,
                    "exp_samples": [{"labels": "{}", "value": int(fires)}],
                }
            ],
        }
        for alert, given, at, fires, because in ROWS
    ]
    done = run(promtool, "test", tmp_path, {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests})
    assert done.returncode == 0, done.stdout + done.stderr


def test_words_of_an_alert_name_the_service(promtool: Path, tmp_path: Path) -> None:
    test: dict[str, Any] = {
        "interval": "1m",
        "input_series": [{"series": n, "values": v} for n, v in judged("0+60x120", "0+40x120").items()],
        "alert_rule_test": [
            {
                "eval_time": "90m",
                "alertname": FAST,
                "exp_alerts": [
                    {
                        "exp_labels": {"severity": "critical", **SERVICE},
                        "exp_annotations": {
                            "summary": "a/chat misses its objectives fast",
                            "description": "40% of the requests of the last 5 minutes missed, which is more than six times what "
                            "the objective leaves (or half of all), and so it has been over an hour.",
                            "runbook": f"docs/runbooks/{FAST}.md",
                        },
                    }
                ],
            }
        ],
    }
    done = run(promtool, "test", tmp_path, {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]})
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_and_dashboards_are_promql(promtool: Path, tmp_path: Path) -> None:
    done = subprocess.run([str(promtool), "check", "rules", str(RULES)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    queries = [
        q for board in BOARDS.values() for panels in board.rows.values() for p in panels for q in p.queries.values()
    ]
    queries += [query for board in BOARDS.values() for query in board.moments.values()]
    rules = [{"record": f"board:{n}", "expr": q.replace("$__rate_interval", "30s")} for n, q in enumerate(queries)]
    done = run(promtool, "check", tmp_path, {"groups": [{"name": "boards", "rules": rules}]})
    assert done.returncode == 0, done.stdout + done.stderr


def run(promtool: Path, what: str, folder: Path, content: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    file = folder / "file.yaml"
    file.write_text(yaml.safe_dump(content))
    return subprocess.run([str(promtool), what, "rules", str(file)], capture_output=True, text=True, check=False)

"""The arithmetic of two benchmarks: from what was counted to what is published, and whether a goal is met."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest
from bench.engine.figures import handoff, speeds
from bench.engine.seen import TOKENS, Handoff, Turn
from bench.operator.figures import FIGURES, Figure, net, verdict
from bench.operator.measure import CHANGES, AtSize, Work
from bench.operator.process import counted
from bench.operator.report import as_json, as_page, conditions
from bench.operator.yardstick import beside

NOTHING = Work(60.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, yardstick_ms=2.0)
IDLE = replace(NOTHING, cpu_seconds=0.6, calls=60.0)
CHANGED = replace(NOTHING, seconds=20.0, cpu_seconds=0.6, calls=20.0 + 15 * CHANGES, reconciles=2.0 * CHANGES)
LOOK = {"calls": 5.0, "bytes": 1024.0, "writes": 0.0, "cpu_ms": 4.0, "cpu_ms_least": 3.0}
SMALL = AtSize(
    services=1, added=1, created=NOTHING, start=NOTHING, rss_started_mib=60, rss_after_mib=70, rss_peak_mib=75, idle=IDLE,
    changes={"spec": CHANGED, "pod": CHANGED}, unchanged={"event": LOOK, "periodic": {**LOOK, "calls": 12.0}},
)  # fmt: skip
LARGE = replace(SMALL, services=1000, added=900)
GROWN = replace(CHANGED, cpu_seconds=0.2 + 2 * 0.4)
SLOWED = replace(GROWN, yardstick_ms=4.0)


def figure(name: str) -> Figure:
    return next(one for one in FIGURES if one.name == name)


def test_what_it_takes_at_rest_is_taken_off_a_change() -> None:
    assert net(CHANGED, IDLE, lambda work: work.calls) == pytest.approx(15 * CHANGES)
    assert figure("spec_calls").of(SMALL) == pytest.approx(15)
    assert figure("spec_cpu_ms").of(SMALL) == pytest.approx(1e3 * (0.6 - 0.2) / CHANGES)
    assert net(NOTHING, IDLE, lambda work: work.calls) == 0, "not below nothing"


def test_rest_is_the_lease_and_a_look_at_every_service_in_five_minutes() -> None:
    assert figure("idle_calls").of(LARGE) == pytest.approx(60 + 1000 * 12 / 5)


@pytest.mark.parametrize(
    ("name", "large", "met", "because"),
    [
        ("spec_calls", LARGE, True, "the same"),
        ("spec_calls", replace(LARGE, changes={"spec": replace(CHANGED, calls=500.0), "pod": CHANGED}), False, "grows"),
        ("spec_pieces", LARGE, True, "the same"),
        ("spec_pieces", replace(LARGE, changes={"spec": SLOWED, "pod": CHANGED}), True, "all work takes twice as long"),
        ("spec_pieces", replace(LARGE, changes={"spec": GROWN, "pod": CHANGED}), False, "only ours takes longer"),
        ("event_cpu_ms", LARGE, True, "below five milliseconds"),
        (
            "event_cpu_ms",
            replace(LARGE, unchanged={**SMALL.unchanged, "event": {**LOOK, "cpu_ms": 5.1}}),
            False,
            "above",
        ),
        ("rss_after_mib", replace(LARGE, rss_after_mib=201.0), False, "more than allowed"),
        ("start_cpu_seconds", LARGE, None, "no goal"),
    ],
)
def test_goals(name: str, large: AtSize, met: bool | None, because: str) -> None:
    assert verdict(figure(name), [SMALL, large]) is met, because


def test_the_page_and_the_data_hold_every_figure() -> None:
    where = conditions(1000, {"python": 9.0, "kopf": 40.0, "operator": 60.0})
    page = as_page(where, [SMALL, LARGE])
    assert all(f"| {one.words} |" in page for one in FIGURES)
    assert "1,000" in page
    data = json.loads(json.dumps(as_json(where, [SMALL, LARGE])))
    assert data["figures"]["spec_calls"] == {"1": 15.0, "1000": 15.0}
    assert data["goals_reached"]["spec_calls"] is True


def test_what_the_operator_counts_is_summed_up() -> None:
    text = """
steelyard_reconcile_total{result="done"} 3.0
steelyard_reconcile_total{result="failed"} 1.0
steelyard_reconcile_created{result="done"} 1.7e+09
steelyard_api_requests_total{code="200",method="GET"} 30.0
steelyard_api_requests_total{code="409",method="PATCH"} 2.0
steelyard_api_bytes_total{direction="in"} 100.0
steelyard_api_bytes_total{direction="out"} 10.0
steelyard_child_writes_total{change="created"} 16.0
steelyard_status_writes_total 2.0
steelyard_queue_oldest_wait_seconds 0.5
"""
    seen = counted(text)
    assert seen.oldest_wait == 0.5
    assert (seen.reconciles, seen.failed, seen.calls, seen.bytes, seen.writes) == (4.0, 1.0, 32.0, 110.0, 18.0)


def test_ratios_are_taken_within_a_turn() -> None:
    turns = [
        Turn("decode", 90.0, 95.0, 100.0, 90.0),
        Turn("decode", 45.0, 50.0, 50.0, 50.0),
        Turn("decode", 20.0, 9.0, 10.0, 20.0),
    ]
    (found,) = speeds(turns)
    assert found.to_defaults == pytest.approx(0.9)
    assert found.to_settings == pytest.approx(1.0)
    assert found.reached
    assert not replace(found, to_defaults=0.89).reached
    assert (found.fast_to_defaults, found.reached_fast) == (pytest.approx(0.95), True)


def test_a_handoff_is_told_for_a_thousand_tokens() -> None:
    found = handoff([Handoff(23_000 * TOKENS, 0.05, 0.03, 0.02, 10.0)])
    scale = 1000 / TOKENS
    assert found["megabytes"] == pytest.approx(23.0)
    assert found["serialize_ms"] == pytest.approx(50 * scale)
    assert found["share_of_compute"] == pytest.approx(0.01)


def test_the_yardstick_takes_the_threads_own_time() -> None:
    with beside() as yardstick:
        pass
    assert 0 < yardstick.ms < 1e3 * time.process_time()

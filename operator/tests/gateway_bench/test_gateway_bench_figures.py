"""How repeats become figures, and when they do not count."""

from __future__ import annotations

from typing import Any

import pytest
from bench.gateway.figures import FIGURES, medians, ratio, reached
from bench.gateway.measure import Repeat, faults

BY_NAME = {figure.name: figure for figure in FIGURES}
ENGINE = {"prefills": 10, "decodes": 10, "handoffs": 10}


def loaded(**changes: Any) -> dict[str, Any]:
    well = {
        "issued": 10, "completed": 10, "failed": 0, "unfinished": 0, "first_failure": "", "window_completed": 8,

        "window_events": 0, "window_frames": 0, "window_seconds": 2.0, "cpu_seconds": 0.5, "ttft_p50_us": 1000.0,
        "ttft_p99_us": 5000.0,
        "rss_before": 0, "rss_in_window": 500 * 1024,
    }  # fmt: skip
    return {**well, **changes}


def one(subject: str, **changes: Any) -> Repeat:
    memory = None if subject == "direct" else 1024**2
    loads = {name: loaded(**changes) for name in ("paced", "arrivals", "requests", "flat-out")}
    return Repeat(subject, loads, ENGINE, (), memory, memory, 0.0, 0.0)


@pytest.mark.parametrize(
    ("seen", "engine", "part"),
    [
        ({}, ENGINE, None),
        ({"completed": 9}, ENGINE, "10 requests issued, 9 accounted for"),
        ({"completed": 9, "failed": 1, "first_failure": "status"}, ENGINE, "1 requests failed, the first with: status"),
        ({"completed": 9, "unfinished": 1}, ENGINE, "1 requests were never answered"),
        ({"window_completed": 0}, ENGINE, "nothing was answered"),
        ({}, {**ENGINE, "handoffs": 9}, "without a prefill and its hand-off"),
        ({}, {**ENGINE, "prefills": 9}, "without a prefill and its hand-off"),
    ],
)
def test_a_repeat_that_lost_something_says_so(seen: dict[str, Any], engine: dict[str, int], part: str | None) -> None:
    found = faults({"requests": loaded(**seen)}, engine)
    assert (part is None and found == ()) or (part is not None and any(part in fault for fault in found))


def test_the_median_of_repeats_counts_not_their_mean() -> None:
    found = medians([one("steelyard", cpu_seconds=seconds) for seconds in (0.5, 1.0, 8.0)])
    assert found["steelyard"]["requests_per_cpu_second"] == 8 / 1.0
    assert found["steelyard"]["paced_cpu_percent"] == 50.0


def test_what_direct_calls_take_is_taken_off_the_time_to_first_token() -> None:
    found = medians([one("steelyard", ttft_p50_us=1500.0), one("direct", ttft_p50_us=400.0)])
    assert found["steelyard"]["added_ttft_p50_ms"] == pytest.approx(1.1)
    assert found["direct"]["added_ttft_p50_ms"] is None
    assert found["direct"]["kib_per_stream"] is None


def test_memory_per_stream_is_growth_divided_by_streams() -> None:
    assert medians([one("steelyard", rss_before=0)])["steelyard"]["kib_per_stream"] == 1.0


@pytest.mark.parametrize(
    ("figure", "ours", "theirs", "share", "met"),
    [
        ("requests_per_cpu_second", 0.5, 0.75, 1.5, True),
        ("requests_per_cpu_second", 0.5, 0.7, 1.4, False),
        ("paced_cpu_percent", 0.5, 0.5, 1.0, False),
        ("paced_cpu_percent", 0.4, 0.5, 0.8, True),
        ("requests_per_second", 0.5, 0.5, 1.0, None),
    ],
)
def test_goals(figure: str, ours: float, theirs: float, share: float, met: bool | None) -> None:
    found = medians([one("steelyard", cpu_seconds=ours), one("vllm-router", cpu_seconds=theirs)])
    assert ratio(BY_NAME[figure], found) == pytest.approx(share)
    assert reached(BY_NAME[figure], share) is met


def test_without_a_rival_there_is_no_ratio_and_no_verdict() -> None:
    figure = BY_NAME["requests_per_cpu_second"]
    share = ratio(figure, medians([one("steelyard")]))
    assert share is None
    assert reached(figure, share) is None

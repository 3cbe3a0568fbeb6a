"""The condition MetricsFresh, row by row of its truth table."""

from __future__ import annotations

from dataclasses import replace

import pytest
from steelyard.decide.freshness import UNMATCHED_TICKS, Scraped, metrics_fresh

WELL = Scraped(fault=None, targets=4, ready=3, sampled=3, gauged=3, age=2.0, interval=5.0, limit=15.0)


@pytest.mark.parametrize(
    ("seen", "status", "reason", "says"),
    [
        (WELL, "True", "Fresh", "every ready engine"),
        (replace(WELL, fault="http://p does not answer"), "False", "PrometheusUnreachable", "http://p does not answer"),
        (replace(WELL, ready=0, sampled=0, gauged=0), "Unknown", "NoReadyReplicas", "no engine is ready"),
        (replace(WELL, targets=None, age=None, unmatched=1), "Unknown", "NoMatchingSeries", "not found the pods yet"),
        (replace(WELL, targets=None, unmatched=UNMATCHED_TICKS), "False", "NoMatchingSeries", "3 engines are ready"),
        (replace(WELL, age=None, sampled=0, gauged=0), "False", "ScrapesFailing", "none of 4 targets"),
        (replace(WELL, age=40.0), "False", "SamplesStale", "more than 30 s old"),
        (replace(WELL, gauged=0), "False", "EngineMetricMissing", "vllm:num_requests_running"),
        (replace(WELL, gauged=2), "True", "PartlyUnknown", "1 of 3 ready engines"),
        (replace(WELL, interval=30.0, age=20.0, limit=90.0), "True", "DegradedInterval", "30 s apart"),
    ],
)
def test_rows(seen: Scraped, status: str, reason: str, says: str) -> None:
    verdict = metrics_fresh(seen)
    assert (verdict.status, verdict.reason.value) == (status, reason)
    assert says in verdict.message


def test_an_age_that_grows_is_told_in_doublings_so_that_status_is_not_written_at_every_tick() -> None:
    messages = {metrics_fresh(replace(WELL, age=float(age))).message for age in range(16, 600, 5)}
    assert len(messages) < 7

"""The burst's figures from samples and records, its load, and the size that hindsight chooses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from steelyard.api.labels import DECODE, POOL, PREFILL, ROLE, SERVICE

from e2e.demo.burst import load
from e2e.demo.burst.account import changes, held_seconds, ratio
from e2e.demo.burst.fleet import MOST, Size
from e2e.demo.burst.hindsight import fewest, splits
from e2e.demo.burst.load import Phase, phase_at
from e2e.demo.burst.watch import Sample, sample
from e2e.errors import ToolError
from e2e.load import traces


def seen(at: float = 0.0, prefill: int = 1, decode: int = 1, asked: int = 2, held: int = 2) -> Sample:
    return Sample(at, prefill, decode, asked, held, None, "")


def pod(
    role: str = PREFILL, node: str | None = "node1", phase: str = "Running", ready: bool = True, **metadata: Any
) -> Any:
    return {
        "metadata": {"labels": {ROLE: role, POOL: PREFILL, SERVICE: "auto"}, **metadata},
        "spec": {"nodeName": node} if node else {},
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": str(ready)}]},
    }


@pytest.mark.parametrize(
    ("held", "end", "seconds", "because"),
    [
        ([(0, 2), (10, 4)], 20, 60, "a sample holds until the next one, the last one until the end"),
        ([(-4, 2), (6, 4)], 10, 28, "what was held before the first arrival does not count"),
        ([(0, 2), (10, 4)], 5, 10, "nor what is held after the last"),
        ([], 10, 0, "nobody looked"),
    ],
)
def test_accelerator_seconds(held: list[tuple[float, int]], end: float, seconds: float, because: str) -> None:
    assert held_seconds([seen(at=at, held=number) for at, number in held], end) == seconds, because


@pytest.mark.parametrize(
    ("pods", "expected", "because"),
    [
        ([pod(), pod(DECODE)], (1, 1, 2), "two that serve"),
        ([pod(DECODE)], (0, 1, 1), "what it does now counts, and not the pool it was born in"),
        ([pod(ready=False)], (0, 0, 1), "one that starts has an accelerator and does not serve"),
        ([pod(deletionTimestamp="2026-01-01T00:00:00Z")], (0, 0, 1), "nor does one that leaves"),
        ([pod(node=None, phase="Pending", ready=False)], (0, 0, 0), "one without a node has no accelerator"),
        ([pod(phase="Succeeded", ready=False)], (0, 0, 0), "one that has ended has none any more"),
    ],
)
def test_a_sample_counts_pods_by_what_they_do(pods: list[Any], expected: tuple[int, int, int], because: str) -> None:
    found = sample(1.0, {}, [{"spec": {"replicas": 3}}, {"spec": {"replicas": 2}}], pods)
    assert (found.prefill, found.decode, found.held) == expected, because
    assert found.coming == found.held - found.prefill - found.decode
    assert found.asked == 5
    assert found.attained is None


def test_equal_ratios_of_other_sizes_are_no_change() -> None:
    samples = [seen(prefill=p, decode=d) for p, d in ((1, 2), (2, 4), (3, 3), (1, 1), (1, 2))]
    assert changes([ratio(one) for one in samples]) == 2


def test_the_load_is_always_the_same_and_can_be_read_as_a_trace(tmp_path: Path) -> None:
    arrivals = load.schedule()
    assert arrivals == load.schedule()
    assert [one.at for one in arrivals] == sorted(one.at for one in arrivals)
    load.write(arrivals, tmp_path / "trace.csv")
    read = traces.read(tmp_path / "trace.csv")
    assert [one.prompt_tokens for one in read] == [one.prompt_tokens for one in arrivals]
    assert phase_at(0) == "calm"
    assert phase_at(load.PHASES[0].seconds) == load.PHASES[1].name
    assert phase_at(1e9) == "over"


def test_hindsight_needs_more_for_more_and_refuses_what_no_budget_holds() -> None:
    little, _ = fewest(load.schedule((Phase("little", 60, 0.5, 300, 20),)))
    much, attained = fewest(load.schedule((Phase("much", 60, 5.0, 600, 12),)))
    assert little == Size(1, 1)
    assert much.prefill > little.prefill
    assert attained >= 0.95
    with pytest.raises(ToolError, match="do not hold the objectives"):
        fewest(load.schedule((Phase("too much", 60, 40.0, 600, 12),)))


def test_splits_keep_to_the_maximum_of_a_role() -> None:
    assert splits(2) == [Size(1, 1)]
    assert all(max(size.prefill, size.decode) <= MOST for size in splits(10))
    assert Size(2, 8) in splits(10)

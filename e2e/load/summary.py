"""A run's figures. Law of attainment: the share of the judged requests that met both objectives.

Judged is every request but those that we left and those that we read slowly. What failed, was refused, timed out or hung has
met nothing; one token meets any TPOT. (The gateway's own count leaves out 4xx; here a trace that asks too much is seen.)
Percentiles are of the requests that have the figure, interpolated linearly: beside them stands how many these are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from e2e.load.health import Verdict
from e2e.load.records import Kind, Outcome, Record
from e2e.load.running import Result
from e2e.load.spec import Objectives

PERCENTS = (50, 90, 95, 99)


@dataclass(frozen=True)
class Spread:
    """A figure over requests, in seconds."""

    count: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


@dataclass(frozen=True)
class Attainment:
    """Shares of the judged requests; None where there is no objective or nothing was judged."""

    judged: int
    ttft: float | None
    tpot: float | None
    both: float | None


@dataclass(frozen=True)
class Summary:
    """What `summary.json` holds."""

    requests: int
    outcomes: dict[str, int]  # of every outcome, 0 too
    kinds: dict[str, int]  # `failed/cut` and the like
    duplicated: int  # answers with more than one answer in them, and answers' ids seen before
    hung: int
    seconds: float  # to the last end
    offered_per_second: float  # requests per second of schedule
    completed_per_second: float
    tokens_per_second: float
    most_under_way: int
    ttft: Spread | None
    ttft_from_sent: Spread | None
    tpot: Spread | None
    longest_gap: Spread | None
    request_seconds: Spread | None
    attainment: Attainment
    client: Verdict

    def document(self) -> dict[str, Any]:
        """As JSON, `client_bottleneck` first of all."""
        return {"client_bottleneck": self.client.client_bottleneck, **asdict(self)}


def summarise(result: Result) -> Summary:
    """The figures of a run."""
    records = result.records
    timely = [one for one in records if not one.slow]
    done = [one for one in records if one.outcome is Outcome.COMPLETED]
    seconds = max((one.ended or 0.0 for one in records), default=0.0)
    offered = max(one.scheduled for one in records)
    return Summary(
        requests=len(records),
        outcomes={str(outcome): result.count(outcome) for outcome in Outcome},
        kinds=dict(sorted(Counter(f"{one.outcome}/{one.kind}" for one in records if one.kind).items())),
        duplicated=result.count(Outcome.FAILED, Kind.DUPLICATED) + repeated_ids(records),
        hung=result.count(Outcome.HUNG),
        seconds=seconds,
        offered_per_second=len(records) / offered if offered else 0.0,
        completed_per_second=len(done) / seconds if seconds else 0.0,
        tokens_per_second=sum(one.tokens for one in records) / seconds if seconds else 0.0,
        most_under_way=max((count for _, count in under_way(records)), default=0),
        ttft=spread(one.ttft for one in timely),
        ttft_from_sent=spread(one.ttft_from_sent for one in timely),
        tpot=spread(one.tpot for one in timely),
        longest_gap=spread(one.longest_gap for one in timely),
        request_seconds=spread(one.seconds for one in timely if one.outcome is Outcome.COMPLETED),
        attainment=attainment(records, result.spec.objectives),
        client=result.verdict,
    )


def spread(figures: Iterable[float | None]) -> Spread | None:
    """The spread of the figures that are there; None when none is."""
    known = np.array([figure for figure in figures if figure is not None])
    if not len(known):
        return None
    p50, p90, p95, p99 = (float(value) for value in np.percentile(known, PERCENTS))
    return Spread(len(known), float(known.mean()), p50, p90, p95, p99, float(known.max()))


def attainment(records: Sequence[Record], objectives: Objectives) -> Attainment:
    """The shares of the judged requests that met the objectives."""
    judged = [one for one in records if one.outcome is not Outcome.CANCELLED and not one.slow]

    def share(met: Sequence[bool]) -> float | None:
        return sum(met) / len(met) if met else None

    first = [_met(one, one.ttft, objectives.ttft) for one in judged]
    rest = [_met(one, one.tpot or 0.0, objectives.tpot) for one in judged]
    return Attainment(
        judged=len(judged),
        ttft=None if objectives.ttft is None else share(first),
        tpot=None if objectives.tpot is None else share(rest),
        both=None if objectives == Objectives() else share([all(pair) for pair in zip(first, rest, strict=True)]),
    )


def _met(record: Record, figure: float | None, objective: float | None) -> bool:
    if record.outcome is not Outcome.COMPLETED:
        return False
    return objective is None or (figure is not None and figure <= objective)


def repeated_ids(records: Iterable[Record]) -> int:
    """Answers whose id an earlier answer had: one answer that reached two requests."""
    counts = Counter(one.answer_id for one in records if one.answer_id)
    return sum(count - 1 for count in counts.values())


def under_way(records: Iterable[Record]) -> list[tuple[float, int]]:
    """How many requests are under way, as (seconds, from then on); an end goes before a beginning at the same moment."""
    steps = [(one.sent, 1) for one in records if one.sent is not None]
    steps += [(one.ended, -1) for one in records if one.sent is not None and one.ended is not None]
    count, line = 0, []
    for at, step in sorted(steps):
        count += step
        line.append((at, count))
    return line

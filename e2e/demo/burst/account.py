"""The burst's figures, from the clients' records and the samples."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

from e2e.demo.burst.watch import Sample
from e2e.load import Outcome, Result, summarise


@dataclass(frozen=True)
class Figures:
    """One service's; `e2e/out/burst.json` holds them by the service's name."""

    requests: int
    failed: int  # whatever was not answered in full
    attainment: float  # share of all requests that met both objectives, as clients saw it
    accelerator_hours: float  # held from the first arrival to the last, starting and leaving ones included
    ratio_changes: int  # of prefill:decode among the replicas that serve
    replica_changes: int  # of the number that is asked for


def figures(result: Result, samples: Sequence[Sample]) -> Figures:
    """The figures of one service."""
    end = result.records[-1].scheduled
    return Figures(
        requests=len(result.records),
        failed=len(result.records) - result.count(Outcome.COMPLETED),
        attainment=round(summarise(result).attainment.both or 0.0, 4),
        accelerator_hours=round(held_seconds(samples, end) / 3600, 4),
        ratio_changes=changes([ratio(one) for one in samples if one.prefill and one.decode]),
        replica_changes=changes([one.asked for one in samples]),
    )


def held_seconds(samples: Sequence[Sample], end: float) -> float:
    """Accelerator-seconds of [0, end]: what a sample saw is taken to hold until the next one."""
    if not samples:
        return 0.0
    steps = [*((one.at, one.held) for one in samples), (end, 0)]
    return sum(held * max(0.0, min(then, end) - max(now, 0.0)) for (now, held), (then, _) in pairwise(steps))


def ratio(sample: Sample) -> Fraction:
    """prefill:decode in lowest terms."""
    return Fraction(sample.prefill, sample.decode)


def changes(values: Sequence[object]) -> int:
    """How often a value differs from the one before it."""
    return sum(one != other for one, other in pairwise(values))


def write(found: dict[str, Figures], path: Path) -> None:
    """The figures as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({name: asdict(one) for name, one in found.items()}, indent=2) + "\n")

"""Figures of one strategy at one rate. Goodput: requests per second that met both objectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.batching.load import Asked
from bench.batching.play import Answered

TTFT, TPOT = 5.0, 0.5  # objectives, seconds


@dataclass(frozen=True)
class Figures:
    """Seconds of the clock; tokens per second are those of answers, over the time from the first arrival to the last end."""

    batching: str
    rate: float
    tokens_per_second: float
    ttft_p50: float
    ttft_p95: float
    tpot_p50: float
    tpot_p95: float
    attained: float
    goodput: float


def figures(batching: str, rate: float, asked: Sequence[Asked], answered: Sequence[Answered]) -> Figures:
    """The figures of one run."""
    span = max(one.ended for one in answered) - asked[0].at
    ttft, tpot = [np.percentile([getattr(one, name) for one in answered], (50, 95)) for name in ("ttft", "tpot")]
    met = sum(one.ttft <= TTFT and one.tpot <= TPOT for one in answered)
    return Figures(
        batching, rate, sum(one.answer for one in asked) / span, float(ttft[0]), float(ttft[1]), float(tpot[0]),
        float(tpot[1]), met / len(answered), met / span,
    )  # fmt: skip

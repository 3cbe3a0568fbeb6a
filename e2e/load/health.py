"""Whether the client kept up: its lag and its share of a core. A client that did not measures itself, not the server.

The verdict allows 10 ms, or a tenth of the median TTFT (from sending) where that is longer. Each is enough by itself:

* more than one request in a hundred went out later than that after its scheduled moment;
* the event loop was later than that in more than one sample of a hundred (it is sampled every 20 ms; while it is late, first
  tokens wait unread, and seem later than they were);
* a process of the client took more than 80 % of a core over the run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from e2e.load.records import Record

MIN_ALLOWED = 0.010  # seconds
ALLOWED_SHARE = 0.1  # of the median TTFT
MAX_CPU = 0.80
SAMPLE_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Second:
    """One second of one process, from `at` seconds after the run's start."""

    at: float
    loop_lag: float  # seconds, the largest
    cpu: float  # share of a core


@dataclass(frozen=True)
class Health:
    """What one process of the client says of itself."""

    wall: float  # seconds
    cpu: float  # CPU seconds
    loop_lags: tuple[float, ...]  # seconds, one per sample
    seconds: tuple[Second, ...]


@dataclass(frozen=True)
class Verdict:
    """Whether the client was the bottleneck, by which measures, and the measures (seconds, share of a core)."""

    client_bottleneck: bool
    reasons: tuple[str, ...]
    allowed: float  # lag
    send_lag_p50: float
    send_lag_p99: float
    send_lag_max: float
    loop_lag_p99: float
    loop_lag_max: float
    cpu: float  # of the busiest process


def judge(records: Iterable[Record], healths: Sequence[Health]) -> Verdict:
    """The verdict of a run."""
    records = list(records)
    ttfts = [record.ttft_from_sent for record in records if record.ttft_from_sent is not None]
    allowed = max(MIN_ALLOWED, ALLOWED_SHARE * float(np.median(ttfts))) if ttfts else MIN_ALLOWED
    sends = [record.sent - record.scheduled for record in records if record.sent is not None] or [0.0]
    loops = [lag for health in healths for lag in health.loop_lags] or [0.0]
    cpu = max((health.cpu / health.wall for health in healths if health.wall > 0), default=0.0)
    send_p50, send_p99 = (float(np.percentile(sends, percent)) for percent in (50, 99))
    loop_p99 = float(np.percentile(loops, 99))
    reasons = []
    if send_p99 > allowed:
        reasons.append(f"1 % of the requests went out {send_p99 * 1000:.0f} ms late or later")
    if loop_p99 > allowed:
        reasons.append(f"the event loop was {loop_p99 * 1000:.0f} ms late or later in 1 % of the samples")
    if cpu > MAX_CPU:
        reasons.append(f"a process took {cpu:.0%} of a core")
    return Verdict(
        client_bottleneck=bool(reasons),
        reasons=tuple(reasons),
        allowed=allowed,
        send_lag_p50=send_p50,
        send_lag_p99=send_p99,
        send_lag_max=max(sends),
        loop_lag_p99=loop_p99,
        loop_lag_max=max(loops),
        cpu=cpu,
    )


class Monitor:
    """Samples this process while it drives load."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lags: list[float] = []
        self._seconds: list[Second] = []
        self._began, self._cpu = clock(), time.process_time()

    async def run(self) -> None:
        """Sample until cancelled."""
        began, cpu, worst = self._began, self._cpu, 0.0
        while True:
            due = self._clock() + SAMPLE_SECONDS
            await asyncio.sleep(SAMPLE_SECONDS)
            now = self._clock()
            self._lags.append(max(0.0, now - due))
            worst = max(worst, self._lags[-1])
            if now - began >= 1:
                used = time.process_time()
                self._seconds.append(Second(began, worst, (used - cpu) / (now - began)))
                began, cpu, worst = now, used, 0.0

    def health(self) -> Health:
        """What was sampled."""
        wall, used = self._clock() - self._began, time.process_time() - self._cpu
        return Health(wall, used, tuple(self._lags), tuple(self._seconds))

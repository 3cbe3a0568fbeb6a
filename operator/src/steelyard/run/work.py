"""One run of one key, with what the rest of the process wants to know of it: metrics, and facts for liveness."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from steelyard.run import metrics
from steelyard.run.health import Health
from steelyard.run.reconcile import Result
from steelyard.run.worker import Key


@dataclass(frozen=True)
class Work:
    """What the worker calls in its threads; `reconcile` takes namespace, name, faults in a row, and the time."""

    reconcile: Callable[[str, str, int, datetime], Result]
    health: Health

    def __call__(self, key: Key, failures: int) -> float | None:
        """Reconcile and give the seconds until the next look, or None where the service is gone."""
        started = time.monotonic()
        outcome = "failed"
        try:
            result = self.reconcile(*key, failures, datetime.now(UTC))
            outcome = result.outcome
        finally:
            metrics.RECONCILES.labels(outcome).inc()
            metrics.RECONCILE_SECONDS.observe(time.monotonic() - started)
        if result.again_after is None:
            self.health.forget(key)  # a run that read it may have ended after the watch told of its deletion
        elif result.generation is not None:
            self.health.read(key, result.generation, time.monotonic())
        return result.again_after

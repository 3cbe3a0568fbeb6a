"""What prefill needs: room for bursts, and for the steady rate."""

from dataclasses import dataclass
from math import ceil

from steelyard.decide.scale import loss
from steelyard.decide.scale.signals import WINDOW_SECONDS, Objectives, Service, Signals

RATE_SECONDS = 20.0
RATE_SHARE = 0.9  # rho: load of the steady rate at most
COARSE = 0.1  # share of the allowed loss where only spans between scrapes are known
SHORTEST_PATIENCE = 0.02
SPLIT_SECONDS = 45.0  # of arrivals that the split looks at


@dataclass(frozen=True, slots=True)
class Prefill:
    """Prefill's arrivals against what one replica does, feedback included."""

    arrived: loss.Load
    rate: float  # uncached tokens per second, over a quarter of a minute
    velocity: float  # uncached tokens per second of a replica: v/beta
    patience: float | None  # T': seconds a request may wait; None: no objective
    allowed: float  # share of the work that may be late

    @property
    def steady(self) -> float:
        """Replicas that the mean rate needs."""
        return self.rate / (RATE_SHARE * self.velocity)

    def burst(self, bounds: tuple[int, int], guess: int) -> int:
        """The fewest replicas, decode's need included, that lose at most the allowed share over the horizon."""
        if self.patience is None:
            return bounds[0]
        return loss.least(self.arrived, self.allowed, self.velocity, self.patience, bounds, guess)

    def missed(self, replicas: int, queued: float) -> float:
        """Predict the share of recent work that this many prefill replicas alone would miss: bursts, the steady rate, or
        what waits already (`queued` tokens), whichever is worst."""
        alone = self.arrived.last(SPLIT_SECONDS).without_decode()
        share = 0.0
        rate = replicas * self.velocity
        if self.patience is not None and alone.tokens > 0:
            share = loss.lost(alone, replicas, self.velocity, self.patience) / alone.tokens
            over = queued - rate * self.patience
            share = max(share, over / max(queued + 5 * self.rate, 1.0)) if over > 0 else share
        return max(share, 1 - RATE_SHARE * rate / self.rate) if self.rate > 0 else share


def prefill(signals: Signals, service: Service, arrived: loss.Load, velocity: float, first: float) -> Prefill | None:
    """Put the parts together; None where the arrivals are unknown. `velocity` is v/beta, `first` seconds of a typical
    prefill."""
    rate = signals.uncached_rate
    if signals.arrivals is not None:
        windows = signals.arrivals[-round(RATE_SECONDS / WINDOW_SECONDS) :]
        rate = sum(windows) / (len(windows) * WINDOW_SECONDS) if windows else rate
    if rate is None:
        return None
    allowed = service.objectives.allowed_loss
    return Prefill(
        arrived=arrived,
        rate=rate,
        velocity=velocity,
        patience=_patience(service.objectives, first, service.handoff_seconds),
        allowed=allowed if arrived.exact else allowed * COARSE,
    )


def replicas(need: float) -> int:
    """Round a need up to whole replicas."""
    return ceil(need - 1e-9)


def _patience(objectives: Objectives, first: float, handoff: float) -> float | None:
    return None if objectives.ttft is None else max(SHORTEST_PATIENCE, objectives.ttft - first - handoff)

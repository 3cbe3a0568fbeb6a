"""What prefill needs: room for bursts, and for the steady rate."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, sqrt

from steelyard.decide.scale import loss, unseen
from steelyard.decide.scale.signals import WINDOW_SECONDS, Service, Signals

RATE_SECONDS = 20.0
RATE_DOUBT = 0.8  # standard deviations that the rate of so short a time is taken to be too high
MEAN_SECONDS = 60.0  # of the mean that this doubt stops at
LATELY_SECONDS = 10.0  # within which work must be lost for a burst to ask for more than is kept
RATE_SHARE = 0.9  # rho: load of the steady rate at most
COARSE = 0.1  # share of the allowed loss where only spans between scrapes are known
SHORTEST_PATIENCE = 0.02
SPLIT_SECONDS = 45.0  # of arrivals that the split looks at


@dataclass(frozen=True, slots=True)
class Prefill:
    """Prefill's arrivals against what one replica does, feedback included."""

    arrived: loss.Load
    rate: float  # uncached tokens per second, lately
    velocity: float  # uncached tokens per second of a replica: v/beta
    patience: float | None  # T': seconds a request may wait; None: no objective
    allowed: float  # share of the work that may be late
    bursts: float = 0.0  # tokens per second to keep beyond the rate, where only engines tell of the requests

    @property
    def steady(self) -> float:
        """Replicas that the mean rate needs."""
        return max(self.rate / RATE_SHARE, self.rate + self.bursts) / self.velocity

    def burst(self, bounds: tuple[int, int], guess: int, kept: int) -> int:
        """The fewest replicas, decode's need included, that lose at most the allowed share over the horizon.

        More than `kept` only while that many lose work. A burst that is half out of sight is a larger share of what is
        left in sight: that alone asks for nothing.
        """
        if self.patience is None:
            return bounds[0]
        least = loss.least(self.arrived, self.allowed, self.velocity, self.patience, bounds, guess)
        if least <= kept or self._loses(kept, self.patience):
            return least
        return max(kept, bounds[0])

    def _loses(self, replicas: int, patience: float) -> bool:
        """Whether that many would have lost work in the last seconds."""
        until = loss.lost(self.arrived.before(LATELY_SECONDS), replicas, self.velocity, patience)
        return loss.lost(self.arrived, replicas, self.velocity, patience) > until + 1e-6

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
        rate = _rate(signals.arrivals) if signals.arrivals else rate
    if rate is None:
        return None
    allowed = service.objectives.allowed_loss
    patience = patience_of(service, first)
    bursts = 0.0
    if signals.by_engines and patience is not None:
        bursts = unseen.burst_rate(signals, velocity, patience, allowed)
    return Prefill(
        arrived=arrived,
        rate=rate,
        velocity=velocity,
        patience=patience,
        allowed=allowed if arrived.exact else allowed * COARSE,
        bursts=bursts,
    )


def _rate(arrivals: Sequence[float]) -> float:
    """Tokens per second of the last `RATE_SECONDS`, as far as they stand out from their noise, and at least the mean of the
    last minute. The noise is that of the windows, taken as independent."""
    lately = arrivals[-round(RATE_SECONDS / WINDOW_SECONDS) :]
    longer = arrivals[-round(MEAN_SECONDS / WINDOW_SECONDS) :]
    rate, mean = sum(lately) / len(lately), sum(longer) / len(longer)
    noise = sqrt(sum((tokens - mean) ** 2 for tokens in longer) / len(longer) / len(lately))
    return max(min(rate, mean), rate - RATE_DOUBT * noise) / WINDOW_SECONDS


def replicas(need: float) -> int:
    """Round a need up to whole replicas."""
    return ceil(need - 1e-9)


def patience_of(service: Service, first: float) -> float | None:
    """T': seconds a request may wait, where a typical prefill takes `first`; None without an objective."""
    ttft = service.objectives.ttft
    return None if ttft is None else max(SHORTEST_PATIENCE, ttft - first - service.handoff_seconds)

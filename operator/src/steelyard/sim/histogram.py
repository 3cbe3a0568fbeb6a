"""A histogram of seconds on a logarithmic grid: percentiles within a quarter percent in memory that does not grow."""

from collections import defaultdict
from math import exp, inf, log

_PER_E = 200.0  # buckets per factor of e: each is half a percent wide
_LEAST = 1e-6
_SHIFT = 20.0  # makes every logarithm positive


class Histogram:
    """Counts of values >= 0; those below a microsecond count as that."""

    __slots__ = ("_buckets", "count", "greatest", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.greatest = 0.0
        self._buckets: defaultdict[int, int] = defaultdict(int)

    def add(self, value: float) -> None:
        """Count one value."""
        self.count += 1
        self.total += value
        if value > self.greatest:
            self.greatest = value
        self._buckets[int((log(value if value > _LEAST else _LEAST) + _SHIFT) * _PER_E)] += 1

    @property
    def mean(self) -> float | None:
        """The exact mean; None of nothing."""
        return self.total / self.count if self.count else None

    def percentile(self, share: float, *, of: int | None = None) -> float | None:
        """The value that `share` (0..1) of all are below; `of` counts those that have no value as infinite. None of nothing."""
        count = self.count if of is None else of
        if not count:
            return None
        rank, seen = share * count, 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= rank:
                return min(self.greatest, exp((bucket + 0.5) / _PER_E - _SHIFT))
        return inf

    def cumulative(self) -> list[tuple[float, float]]:
        """Points (value, share of all at or below it), rising: the distribution's plot."""
        seen, points = 0, []
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            points.append((exp((bucket + 1) / _PER_E - _SHIFT), seen / self.count))
        return points

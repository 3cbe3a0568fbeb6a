"""Cumulative histograms as Prometheus gives them: percentiles and shares by interpolation inside buckets, and the sum of two
independent times by convolution.

A histogram is a sorted tuple of (upper bound in seconds, cumulative amount), the last bound +Inf. Amounts may be counts or
rates. Everything here is None where nothing was observed: an empty histogram has no percentile.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping

Histogram = tuple[tuple[float, float], ...]


def collect(rows: Mapping[tuple[str, ...], float]) -> dict[tuple[str, ...], Histogram]:
    """Group rows keyed (…, le) into histograms keyed (…).

    One without a +Inf bucket, or whose amounts fall with the bound (a counter reset between two scrapes), is mended to
    the nearest one that rises: Prometheus's own remedy.
    """
    found: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    for key, amount in rows.items():
        found.setdefault(key[:-1], []).append((float(key[-1].replace("+Inf", "inf")), amount))
    return {key: _rising(sorted(pairs)) for key, pairs in found.items()}


def merged(histograms: Iterable[Histogram]) -> Histogram:
    """Add histograms of one grid; where the grids differ, on the bounds that all of them have."""
    given = [dict(each) for each in histograms if each]
    if not given:
        return ()
    bounds = sorted(set.intersection(*(set(each) for each in given)))
    return tuple((bound, sum(each[bound] for each in given)) for bound in bounds)


def total(histogram: Histogram) -> float:
    """The amount of all that was observed."""
    return histogram[-1][1] if histogram else 0.0


def percentile(histogram: Histogram, share: float) -> float | None:
    """The time that `share` (0…1) of the observed ones do not pass.

    Inside a bucket they are taken as spread evenly. One in the last bucket, which has no end, gives that bucket's lower
    bound: at least that.
    """
    every = total(histogram)
    if every <= 0:
        return None
    wanted = share * every
    lower = below = 0.0
    for bound, amount in histogram:
        if amount >= wanted and amount > below:
            if math.isinf(bound):
                return lower
            return lower + (bound - lower) * max(0.0, wanted - below) / (amount - below)
        lower, below = bound, amount
    return None


def share_within(histogram: Histogram, limit: float) -> float | None:
    """The share (0…1) that took `limit` seconds at most.

    In the last bucket, whose end nobody knows, all are taken to have passed the limit.
    """
    every = total(histogram)
    if every <= 0:
        return None
    bounds = [bound for bound, _ in histogram]
    place = bisect_left(bounds, limit)
    lower, below = histogram[place - 1] if place else (0.0, 0.0)
    bound, amount = histogram[place]
    if math.isinf(bound):
        return below / every
    return (below + (amount - below) * (limit - lower) / (bound - lower)) / every


def convolved(first: Histogram, second: Histogram) -> Histogram:
    """The distribution of the sum of two independent times, on the second's grid; its total is 1.

    Each bucket of the first counts as its middle, so a share read from the result is right to half a bucket of the
    first. This is how TTFT is read where no gateway of ours measures it: the prefill pods' whole time and the decode
    pods' time to their first token.
    """
    if total(first) <= 0 or total(second) <= 0:
        return ()
    grid = sorted({bound for bound, _ in (*first, *second)})
    middles = [(middle, weight / total(first)) for middle, weight in _middles(first)]
    return tuple(
        (bound, 1.0 if math.isinf(bound) else sum(w * (share_within(second, bound - m) or 0.0) for m, w in middles))
        for bound in grid
    )


def _middles(histogram: Histogram) -> list[tuple[float, float]]:
    """Each bucket's middle and its own amount; of the last bucket, its lower bound."""
    found = []
    lower = below = 0.0
    for bound, amount in histogram:
        if amount > below:
            found.append((lower if math.isinf(bound) else (lower + bound) / 2, amount - below))
        lower, below = bound, amount
    return found


def _rising(pairs: list[tuple[float, float]]) -> Histogram:
    if not pairs or not math.isinf(pairs[-1][0]):
        return ()
    found = []
    most = 0.0
    for bound, amount in pairs:
        most = max(most, amount)
        found.append((bound, most))
    return tuple(found)

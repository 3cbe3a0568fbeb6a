"""The physical limit: the cheapest schedule of identical replicas that somebody who knew the future could have run.

A replica is paid for from the start of its start-up; stopping is free. Levels decouple (co-area): the k-th replica is on
whenever the need is k or more, and a gap between two such spans is bridged or paid as another start, whichever is cheaper:

    cost = Σ_k [ time with need ≥ k  +  start (the first)  +  Σ_gaps min(gap, start) ]

Exact, O(T·max need). The need is fluid (work over capacity in each bin), so it hides queueing: a bound, not a plan.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import ceil, inf


def cheapest(need: Sequence[int], bin_seconds: float, start_seconds: float) -> float:
    """Replica-seconds of the cheapest schedule with at least `need` replicas ready in each bin."""
    cost = 0.0
    for level in range(1, max(need, default=0) + 1):
        on = [t for t, replicas in enumerate(need) if replicas >= level]
        cost += len(on) * bin_seconds + start_seconds
        for before, after in pairwise(on):
            gap = (after - before - 1) * bin_seconds
            cost += min(gap, start_seconds)
    return cost


def schedule(need: Sequence[int], bin_seconds: float, start_seconds: float) -> list[int]:
    """Replicas ready in each bin of that cheapest schedule: each level's short gaps are bridged."""
    ready = [0] * len(need)
    for level in range(1, max(need, default=0) + 1):
        on = [t for t, replicas in enumerate(need) if replicas >= level]
        for before, after in zip(on, [*on[1:], on[-1]], strict=True):
            bridged = (after - before - 1) * bin_seconds <= start_seconds
            for t in range(before, after if bridged and after > before else before + 1):
                ready[t] += 1
    return ready


def needs(work: Sequence[float], least: int = 0) -> list[int]:
    """Whole replicas for a load given in replicas (work over capacity), at least `least`."""
    return [max(least, ceil(load - 1e-9)) for load in work]


def cheapest_share(
    work: Sequence[float], bin_seconds: float, start_seconds: float, share: float, ready: int = 0
) -> tuple[float, float]:
    """Replica-seconds to serve at least `share` of a load given in replicas, and the share served. The first start of
    `ready` replicas is free: they run already.

    What a price per unit of work makes worth serving, by levels (each an on-off problem that dynamic programming solves
    exactly); the price is the least that serves enough. So it is exact at the shares that prices reach, and an upper
    bound between them.
    """
    total = sum(work) * bin_seconds
    if total <= 0:
        return 0.0, 1.0
    low, high = 0.0, 1.0
    while _served(work, bin_seconds, start_seconds, high, ready)[1] < share * total - 1e-9:
        high *= 4
        if high > 1e12:
            return inf, 0.0
    for _ in range(50):
        middle = (low + high) / 2
        if _served(work, bin_seconds, start_seconds, middle, ready)[1] >= share * total - 1e-9:
            high = middle
        else:
            low = middle
    cost, served = _served(work, bin_seconds, start_seconds, high, ready)
    return cost, served / total


def _served(
    work: Sequence[float], bin_seconds: float, start_seconds: float, price: float, ready: int
) -> tuple[float, float]:
    """(Replica-seconds, work served) of the schedule that is best when a unit of work earns `price`."""
    cost = served = 0.0
    for level in range(ceil(max(work) - 1e-9)):
        # Each state is (earned − paid, paid, served); on or off in the bin just seen.
        on, off = (0.0 if level < ready else -inf, 0.0, 0.0), (0.0, 0.0, 0.0)
        for load in work:
            here = min(1.0, max(0.0, load - level)) * bin_seconds
            begun = (off[0] - start_seconds, off[1] + start_seconds, off[2])
            before = max(on, begun)
            off = max(off, on)
            on = (before[0] - bin_seconds + price * here, before[1] + bin_seconds, before[2] + here)
        best = max(on, off)
        if best[2] <= 0 and level >= ready:
            break
        cost += best[1]
        served += best[2]
    return cost, served

"""How long a surplus is kept (ski rental), by what became of earlier ones.

A replica that is given up and asked for again costs a start; one that is kept costs what it idles. Kept for about a start,
it never costs more than twice what knowing the future would. Whether it is one start or two is learnt: each time that a
need which had gone comes back, or does not, tells which of the two spans would have been the cheaper one.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import exp
from typing import NamedTuple

Window = tuple[tuple[float, int], ...]  # (time, need), needs falling: the first is the most

RETURN_PRICE = 2.0  # starts that a replica is worth which is there when its need comes back
FORGET_SECONDS = 900.0


class Kept(NamedTuple):
    """A need's window, and the replica-seconds that keeping its surplus for long has gained so far."""

    window: Window = ()
    gain: float = 0.0


class Spans(NamedTuple):
    """Seconds: for how long a surplus is kept, at least or where that has gained something, and a start-up."""

    brief: float
    long: float
    start: float

    def of(self, kept: Kept) -> float:
        """How long this surplus is kept."""
        return self.long if kept.gain >= 0 else self.brief


def keep(window: Sequence[tuple[float, int]], time: float, need: int, seconds: float) -> Window:
    """Add the present need; forget what is older than `seconds` and what can never be the most again."""
    kept = [entry for entry in window if entry[0] >= time - seconds - 1e-9]
    while kept and kept[-1][1] <= need:
        kept.pop()
    return (*kept, (time, need))


def most(kept: Kept, time: float, spans: Spans) -> int:
    """The most that was needed within the time for which a surplus is kept; 0 where nothing is known."""
    first = time - spans.of(kept) - 1e-9
    return next((need for at, need in kept.window if at >= first), 0)


def further(kept: Kept, time: float, need: int, spans: Spans) -> Kept:
    """Add the present need, and learn from it."""
    return Kept(keep(kept.window, time, need, spans.long), gained(kept, time, need, spans))


def gained(kept: Kept, time: float, need: int, spans: Spans) -> float:
    """What keeping surplus for the long span rather than the brief one has gained until now; what is long ago fades.

    A need that comes back after a gap between the two: the start that it would have cost, at its price, less what was
    idle meanwhile. A need that stays away for more than the long one: what was idle for nothing.
    """
    window, (brief, long, start) = kept.window, spans
    if not window:
        return kept.gain
    elapsed = time - window[-1][0]
    gain = kept.gain * exp(-elapsed / FORGET_SECONDS)
    level = window[-1][1]
    for at, then in reversed(window):
        back = min(then, need) - level
        if back > 0:
            if brief < time - at <= long:
                gain += back * (RETURN_PRICE * start - (time - at - brief))
            level += back
    for (at, then), (_, later) in pairwise((*window, (time, need))):
        if time - elapsed - at <= long < time - at:
            gain -= max(0, then - max(later, need)) * (long - brief)
    return gain


def stood_still(kept: Kept, time: float) -> Kept:
    """The same as if no time had passed since the newest entry: what was needed before is not forgotten."""
    passed = time - kept.window[-1][0] if kept.window else 0.0
    return kept._replace(window=tuple((at + passed, need) for at, need in kept.window))

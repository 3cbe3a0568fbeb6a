"""How much work would come too late with N replicas: a queue that serves at c and can wait T before it overflows.

    b_j = b_{j−1} + a_j − c_j·tau, kept within 0 … c_j·T;  what is above is lost

a_j tokens arrive in window j of tau seconds; c_j = max(0, N − D_j)·v tokens per second is left after decode's need D_j.
The loss falls with N, so that the least N is found by bisection; a search ends as soon as the loss is too large.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf

from steelyard.decide.scale.decision import Tick
from steelyard.decide.scale.signals import WINDOW_SECONDS


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive windows of equal length during which decode needed the same."""

    decode_need: float  # replicas
    seconds: float  # of one window
    tokens: Sequence[float]


@dataclass(frozen=True, slots=True)
class Load:
    """The arrivals of the horizon."""

    stretches: tuple[Stretch, ...]
    tokens: float  # in all
    exact: bool  # quarter seconds, not spans between scrapes

    def last(self, seconds: float) -> "Load":
        """Cut off what is older than `seconds`."""
        kept: list[Stretch] = []
        for stretch in reversed(self.stretches):
            windows = min(len(stretch.tokens), round(seconds / stretch.seconds))
            if windows <= 0:
                break
            kept.append(Stretch(stretch.decode_need, stretch.seconds, stretch.tokens[-windows:]))
            seconds -= windows * stretch.seconds
        kept.reverse()
        return Load(tuple(kept), sum(sum(s.tokens) for s in kept), self.exact)

    def before(self, seconds: float) -> "Load":
        """Cut off what is younger than `seconds`."""
        kept: list[Stretch] = []
        for stretch in reversed(self.stretches):
            windows = min(len(stretch.tokens), round(seconds / stretch.seconds))
            seconds -= windows * stretch.seconds
            if windows < len(stretch.tokens):
                left = stretch.tokens[: len(stretch.tokens) - windows]
                kept.append(Stretch(stretch.decode_need, stretch.seconds, left))
        kept.reverse()
        return Load(tuple(kept), sum(sum(s.tokens) for s in kept), self.exact)

    def without_decode(self) -> "Load":
        """The same arrivals for replicas that only prefill."""
        return Load(tuple(Stretch(0.0, s.seconds, s.tokens) for s in self.stretches), self.tokens, self.exact)


def load(arrivals: Sequence[float] | None, ticks: Sequence[Tick], horizon: float) -> Load:
    """Join the arrivals with what decode needed at the time; `ticks` ends with the present one. Windows before the first
    tick take its need."""
    stretches: list[Stretch] = []
    if arrivals is not None:
        end = len(arrivals)
        first = max(0, end - round(horizon / WINDOW_SECONDS))
        now = ticks[-1].time
        for tick in reversed(ticks):
            begin = first if tick is ticks[0] else max(first, len(arrivals) - round((now - tick.time) / WINDOW_SECONDS))
            if begin < end:
                stretches.append(Stretch(tick.decode_need, WINDOW_SECONDS, arrivals[begin:end]))
                end = begin
        stretches.reverse()
    else:
        for before, tick in pairwise(ticks):
            span = tick.time - before.time
            if tick.uncached_rate is not None and span > 0:
                stretches.append(Stretch(tick.decode_need, span, (tick.uncached_rate * span,)))
    return Load(tuple(stretches), sum(sum(s.tokens) for s in stretches), arrivals is not None)


def lost(arrived: Load, replicas: float, velocity: float, patience: float, enough: float = inf) -> float:
    """Tokens lost with that many replicas of `velocity` tokens per second each, where a request can wait `patience`
    seconds; stops counting above `enough`."""
    backlog = gone = 0.0
    for stretch in arrived.stretches:
        rate = max(0.0, replicas - stretch.decode_need) * velocity
        served, room = rate * stretch.seconds, rate * patience
        for tokens in stretch.tokens:
            backlog += tokens - served
            if backlog < 0.0:
                backlog = 0.0
            elif backlog > room:
                gone += backlog - room
                backlog = room
        if gone > enough:
            return gone
    return gone


def least(arrived: Load, share: float, velocity: float, patience: float, bounds: tuple[int, int], guess: int) -> int:
    """The fewest replicas within `bounds` that lose at most `share` of the work; the upper bound where none does.

    `guess` is where the search begins: the last answer is mostly right, and then two evaluations suffice.
    """
    low, high = bounds
    allowed = share * arrived.tokens
    if high <= low or arrived.tokens <= 0:
        return low

    def enough(replicas: int) -> bool:
        return lost(arrived, replicas, velocity, patience, allowed) <= allowed

    step = 1
    at = min(max(guess, low), high)
    if enough(at):
        high = at
        while high > low and enough(max(low, high - step)):
            high = max(low, high - step)
            step *= 2
        low = max(low, high - step + 1)
    elif at == high:
        return high
    else:
        low = at + 1
        while low < high and not enough(min(high, low - 1 + step)):
            low = min(high, low + step)
            step *= 2
        high = min(high, low - 1 + step)
    while low < high:
        middle = (low + high) // 2
        if enough(middle):
            high = middle
        else:
            low = middle + 1
    return low

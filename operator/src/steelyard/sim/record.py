"""What a run counts, as the gateway would: every request once, at its end, by the gateway's own truth table.

Memory does not grow with requests: counters, histograms, one cell for each half minute, one for each length class.
"""

from dataclasses import dataclass, field
from math import exp, log
from typing import NamedTuple

from steelyard.decide.queue.judge import Met, Objectives, Outcome, Timing, judge, length_class
from steelyard.sim.histogram import Histogram
from steelyard.sim.requests import Request

PERIOD_SECONDS = 30.0
_PER_E = 50.0  # classes of prompt lengths per factor of e: each is two percent wide


@dataclass(slots=True)
class Share:
    """How many of those that were judged met both objectives."""

    judged: int = 0
    met: int = 0

    @property
    def value(self) -> float | None:
        """The share; None of nothing."""
        return self.met / self.judged if self.judged else None


@dataclass(slots=True)
class Record:
    """Counters only ever rise; a scrape copies them."""

    objectives: Objectives
    arrived: int = 0
    completed: int = 0
    failed: int = 0
    refused: int = 0
    gave_up: int = 0  # of those that failed: their clients left
    met: int = 0
    ttft_met: int = 0
    tpot_met: int = 0
    prompt_tokens: int = 0
    uncached_tokens: int = 0  # of those that arrived
    arrived_prompt_tokens: int = 0
    answer_tokens: int = 0  # of those that completed
    retries: int = 0
    worst_wait: float = 0.0  # seconds for a first token, also of those who never got one
    ttft: Histogram = field(default_factory=Histogram)
    tpot: Histogram = field(default_factory=Histogram)
    classes: dict[str, Share] = field(default_factory=dict)
    lengths: dict[int, Share] = field(default_factory=dict)  # by the logarithm of the prompt
    periods: dict[int, Share] = field(default_factory=dict)

    @property
    def ended(self) -> int:
        """Requests that are over."""
        return self.completed + self.failed + self.refused

    def arrive(self, request: Request) -> None:
        """A request is there."""
        self.arrived += 1
        self.arrived_prompt_tokens += request.prompt
        self.uncached_tokens += request.tokens

    def end(self, request: Request, outcome: Outcome, now: float) -> None:
        """A request is over: judge and count it."""
        ttft = tpot = None
        if outcome is Outcome.COMPLETED and request.first is not None:
            self.completed += 1
            self.prompt_tokens += request.prompt
            self.answer_tokens += request.answer
            ttft = request.first - request.arrived
            self.ttft.add(ttft)
            if request.answer > 1:
                tpot = (now - request.first) / (request.answer - 1)
                self.tpot.add(tpot)
        elif outcome is Outcome.REFUSED:
            self.refused += 1
        else:
            self.failed += 1
        waited = (now if request.first is None else min(now, request.first)) - request.arrived
        if waited > self.worst_wait:
            self.worst_wait = waited
        first, rest = judge(outcome, Timing(ttft, tpot, request.answer), self.objectives)
        met = first is Met.TRUE and rest is Met.TRUE
        self.ttft_met += first is Met.TRUE
        self.tpot_met += rest is Met.TRUE
        self.met += met
        for share in (
            self.classes.setdefault(length_class(request.prompt), Share()),
            self.lengths.setdefault(int(log(request.prompt) * _PER_E), Share()),
            self.periods.setdefault(int(request.arrived / PERIOD_SECONDS), Share()),
        ):
            share.judged += 1
            share.met += met

    def quartiles(self) -> list["Quartile"]:
        """Attainment of the quarter with the shortest prompts, and so on: of this load, not of fixed classes. Requests of
        lengths within two percent of each other stay together, so that quarters may differ in size; empty ones are left out."""
        parts = [(0.0, 0.0, Share()) for _ in range(4)]
        seen = 0
        for number, share in sorted(self.lengths.items()):
            place = min(3, int(4 * (seen + share.judged / 2) / max(1, self.ended)))
            seen += share.judged
            least, _, total = parts[place]
            both = Share(total.judged + share.judged, total.met + share.met)
            parts[place] = (least or exp(number / _PER_E), exp((number + 1) / _PER_E), both)
        return [Quartile(round(least), round(most), share) for least, most, share in parts if share.judged]


class Quartile(NamedTuple):
    """A quarter of the requests: prompt tokens from `least` to `most`, and how they fared."""

    least: int
    most: int
    share: Share

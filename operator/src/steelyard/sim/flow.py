"""Loads of weeks as rates: prompt tokens of each second, from a table of requests per second and from lengths.

Noise is that of a renewal process: the tokens of a step are Gamma with the mean of the rate, and with the variance that gaps of
coefficient of variation `cv` and the spread of the prompts give. Steps are independent: bursts that last longer than the
table's bins are in the table, shorter ones only as far as `cv` says.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from random import Random
from typing import NamedTuple, Self

STEP_SECONDS = 1.0
PERCENT = 100
AS_THEY_COME = (
    0.25  # of late work, that is of prompts of any length; the rest is of the longest. Fitted on one day by requests
)


class Lengths(NamedTuple):
    """What is known of the lengths of a load's requests, in tokens."""

    prompt: float  # mean
    answer: float  # mean
    square: float  # mean square of the prompts, over the square of their mean
    longest: tuple[float, ...]
    """At place k: which share of the requests, longest prompts first, makes up k percent of all prompt tokens."""

    @classmethod
    def of(cls, lengths: Sequence[tuple[int, int]], prompt: float | None = None, answer: float | None = None) -> Self:
        """From (prompt, answer) pairs; `prompt` and `answer` replace their means, the spread stays. Raises ValueError."""
        if not lengths:
            raise ValueError("no lengths: a load of rates needs requests to take lengths from")
        prompts = sorted((p for p, _ in lengths), reverse=True)
        total, mean = sum(prompts), sum(prompts) / len(prompts)
        shares = [done / total for done in accumulate(prompts)]
        longest, place = [], 0
        for percent in range(PERCENT + 1):
            while place < len(shares) and shares[place] < percent / PERCENT - 1e-12:
                place += 1
            longest.append(min(1.0, (place + 1) / len(prompts)) if percent else 0.0)
        square = sum(p * p for p in prompts) / len(prompts) / (mean * mean)
        own = sum(a for _, a in lengths) / len(lengths)
        return cls(prompt or mean, answer or own, square, tuple(longest))

    def requests(self, work: float) -> float:
        """The share of the requests that is late where a share of the work is: mostly the longest prompts."""
        place = min(max(work, 0.0), 1.0) * PERCENT
        low = min(int(place), PERCENT - 1)
        longest = self.longest[low] + (place - low) * (self.longest[low + 1] - self.longest[low])
        return AS_THEY_COME * place / PERCENT + (1 - AS_THEY_COME) * longest


class Flow(NamedTuple):
    """A load: (seconds, requests per second) rising in time, until `end` seconds."""

    rates: Sequence[tuple[float, float]]
    end: float
    lengths: Lengths
    cv: float = 1.0
    scale: float = 1.0
    seed: int = 0

    def until(self, end: float) -> "Flow":
        """The same load, cut off."""
        return self._replace(rates=[row for row in self.rates if row[0] < end], end=min(end, self.end))

    def steps(self) -> Iterator[float]:
        """Prompt tokens of each step, from second 0 on."""
        random = Random(f"flow {self.seed}")
        spread = self.cv * self.cv + self.lengths.square - 1
        unit = spread * self.lengths.prompt
        begins = [round(begin / STEP_SECONDS) for begin, _ in self.rates] + [round(self.end / STEP_SECONDS)]
        for (_, rate), begin, stop in zip(self.rates, begins, begins[1:], strict=False):
            shape = rate * self.scale * STEP_SECONDS / spread
            for _ in range(stop - begin):
                yield random.gammavariate(shape, unit) if shape > 0 else 0.0

"""The load that is planned for: a rate of requests, and pairs of prompt and answer that are equally likely."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import exp
from statistics import NormalDist, fmean
from typing import Self

POINTS = 31  # of a made-up distribution
SAMPLE = 240  # of a trace


class Lengths:
    """Pairs of prompt and answer that are equally likely, in tokens, with what is often asked of them counted once.

    Compared by identity, so that what is computed for them can be kept.
    """

    def __init__(self, pairs: Iterable[tuple[float, float]]) -> None:
        """Take the pairs. Raises ValueError where there are none."""
        self.pairs = tuple(pairs)
        if not self.pairs:
            raise ValueError("the load has no requests")
        answers = sum(answer for _, answer in self.pairs)
        self.prompt = fmean(prompt for prompt, _ in self.pairs)
        self.answer = answers / len(self.pairs)
        # Mean context of a sequence while it is written: each counts as long as it is written.
        self.context = sum((prompt + answer / 2) * answer for prompt, answer in self.pairs) / answers
        self.longest = max(prompt + answer for prompt, answer in self.pairs)


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests per second, and their lengths. Prompts count what is not cached."""

    rate: float
    lengths: Lengths

    @classmethod
    def of_means(cls, rate: float, prompt: float, answer: float, spread: float = 0.5) -> Self:
        """Log-normal lengths around their means, independent of each other; `spread` is the deviation of the logarithm."""
        quantiles = [_quantile((point + 0.5) / POINTS, spread) for point in range(POINTS)]
        mean = fmean(quantiles)
        shuffled = [quantiles[(7 * index + 3) % POINTS] for index in range(POINTS)]
        return cls(
            rate, Lengths((prompt * p / mean, answer * a / mean) for p, a in zip(quantiles, shuffled, strict=True))
        )

    @classmethod
    def of_requests(cls, rate: float, requests: Iterable[tuple[float, float]]) -> Self:
        """A trace's own lengths, thinned evenly over its time. Raises ValueError where there are none."""
        every = list(requests)
        return cls(rate, Lengths(every[:: max(1, len(every) // SAMPLE)]))

    @property
    def context(self) -> float:
        """Mean context of a sequence while it is written."""
        return self.lengths.context

    def at(self, rate: float) -> Self:
        """The same requests at another rate."""
        return replace(self, rate=rate)

    def scaled(self, prompts: float = 1.0, answers: float = 1.0) -> Self:
        """The same rate with longer or shorter requests."""
        return replace(self, lengths=Lengths((p * prompts, a * answers) for p, a in self.lengths.pairs))


def _quantile(share: float, spread: float) -> float:
    return exp(spread * NormalDist().inv_cdf(share)) if spread > 0 else 1.0

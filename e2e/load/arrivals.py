"""When requests arrive and how long they are: synthetic patterns, and changes to a schedule.

A schedule is a tuple of arrivals in order of time. It is made before the run and never depends on answers (open loop).
Every function here is deterministic in its seed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from e2e.load.errors import LoadError


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request: seconds after the run's start, tokens in, tokens out.

    `blocks` are the identities of the prompt's 512-token blocks where the trace has them: equal ones get equal words, so a
    prefix cache finds what it would have found in the original.
    """

    at: float
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()


Schedule = tuple[Arrival, ...]


class Pattern(StrEnum):
    """How synthetic arrivals are spaced."""

    CONSTANT = "constant"  # every 1/rate seconds
    POISSON = "poisson"  # independent arrivals
    GAMMA = "gamma"  # gamma-distributed gaps of a coefficient of variation > 1: bursts
    SINUSOID = "sinusoid"  # Poisson with the rate rate·(1 + swing·sin(2πt/period))


@dataclass(frozen=True)
class Shape:
    """A synthetic arrival process."""

    pattern: Pattern = Pattern.POISSON
    rate: float = 1.0  # requests per second, mean
    burstiness: float = 3.0  # gamma: coefficient of variation of the gaps
    period_seconds: float = 60.0  # sinusoid
    swing: float = 0.8  # sinusoid: 0 is constant, 1 reaches zero

    def __post_init__(self) -> None:
        for name in ("rate", "burstiness", "period_seconds"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise LoadError(f"{name} is {getattr(self, name)}; it must be a number above 0.")
        if not 0 <= self.swing <= 1:
            raise LoadError(f"swing is {self.swing}; it must be from 0 to 1.")


@dataclass(frozen=True)
class Lengths:
    """Tokens of synthetic requests: lognormal about their means, with one coefficient of variation (0: all equal)."""

    prompt_tokens: float = 256
    output_tokens: float = 64
    variation: float = 0.0

    def __post_init__(self) -> None:
        if self.prompt_tokens < 1 or self.output_tokens < 1:
            raise LoadError("prompt_tokens and output_tokens must be at least 1.")
        if not (math.isfinite(self.variation) and self.variation >= 0):
            raise LoadError(f"variation is {self.variation}; it must be 0 or a number above it.")


def synthetic(shape: Shape, lengths: Lengths, seconds: float, seed: int) -> Schedule:
    """The arrivals of `shape` in [0, seconds), with lengths of their own random stream: a new shape keeps the lengths."""
    sizes = random.Random(f"lengths {seed}")
    return tuple(
        Arrival(at, _length(lengths.prompt_tokens, lengths, sizes), _length(lengths.output_tokens, lengths, sizes))
        for at in _times(shape, seconds, random.Random(f"times {seed}"))
    )


def _times(shape: Shape, seconds: float, rng: random.Random) -> Iterator[float]:
    if shape.pattern is Pattern.CONSTANT:
        yield from (number / shape.rate for number in range(math.ceil(seconds * shape.rate)))
        return
    at = 0.0
    while (at := at + _gap(shape, rng)) < seconds:
        if shape.pattern is not Pattern.SINUSOID or rng.random() < _share_of_peak(shape, at):
            yield at


def _gap(shape: Shape, rng: random.Random) -> float:
    """The time to the next candidate; a sinusoid's are drawn at its peak rate and thinned (Lewis and Shedler)."""
    if shape.pattern is Pattern.GAMMA:
        form = 1 / shape.burstiness**2
        return rng.gammavariate(form, 1 / (shape.rate * form))
    return rng.expovariate(shape.rate * (1 + shape.swing if shape.pattern is Pattern.SINUSOID else 1))


def _share_of_peak(shape: Shape, at: float) -> float:
    return (1 + shape.swing * math.sin(2 * math.pi * at / shape.period_seconds)) / (1 + shape.swing)


def _length(mean: float, lengths: Lengths, rng: random.Random) -> int:
    spread = math.log1p(lengths.variation**2)  # σ² of a lognormal with this coefficient of variation
    return max(1, round(rng.lognormvariate(math.log(mean) - spread / 2, math.sqrt(spread))))


def cut(schedule: Iterable[Arrival], start: float = 0.0, seconds: float = math.inf) -> Schedule:
    """The arrivals of [start, start + seconds), counted from `start`."""
    return tuple(replace(one, at=one.at - start) for one in schedule if start <= one.at < start + seconds)


def hasten(schedule: Iterable[Arrival], speed: float) -> Schedule:
    """The same arrivals on a clock `speed` times as fast: bursts get denser, and start-up times weigh more."""
    if not (math.isfinite(speed) and speed > 0):
        raise LoadError(f"speed is {speed}; it must be a number above 0.")
    return tuple(replace(one, at=one.at / speed) for one in schedule)


def scale(schedule: Schedule, factor: float, seed: int) -> Schedule:
    """`factor` times as many arrivals on the same clock.

    Each arrival is kept ⌊factor⌋ times and once more with the probability of the rest. Copies are spread at random over the
    gap before the arrival, so the rate keeps its shape and no burst of equal instants is made up.
    """
    if not (math.isfinite(factor) and factor > 0):
        raise LoadError(f"scale is {factor}; it must be a number above 0.")
    rng = random.Random(f"scale {seed}")
    copies: list[Arrival] = []
    before = 0.0
    for one in schedule:
        count = math.floor(factor) + (rng.random() < factor % 1)
        gap, before = one.at - before, one.at
        copies += [replace(one, at=one.at - (gap * rng.random() if copy else 0)) for copy in range(count)]
    return tuple(sorted(copies, key=lambda one: one.at))


def clip(schedule: Iterable[Arrival], max_prompt: int | None, max_output: int | None) -> Schedule:
    """No prompt and no answer longer than these: for models with a shorter context than the trace's."""
    return tuple(
        replace(
            one,
            prompt_tokens=min(one.prompt_tokens, max_prompt or one.prompt_tokens),
            output_tokens=min(one.output_tokens, max_output or one.output_tokens),
        )
        for one in schedule
    )

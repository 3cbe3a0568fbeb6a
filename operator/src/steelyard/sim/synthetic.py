"""Arrivals that are made up: Poisson, bursty, sinusoidal and alternating loads, from a seed.

Inter-arrival times are Gamma with a coefficient of variation `cv` (1 is Poisson); lengths are log-normal around their means
with `spread`, the standard deviation of the logarithm (0 gives constant lengths).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from math import pi, sin
from random import Random

from steelyard.sim.requests import Arrival


@dataclass(frozen=True, slots=True)
class Load:
    """A still load: requests per second, mean tokens. Raises ValueError, naming the field, where it makes no sense."""

    rate: float
    prompt: float
    answer: float
    cv: float = 1.0
    spread: float = 0.5
    prompt_limit: int = 60_000
    answer_limit: int = 8_000

    def __post_init__(self) -> None:
        """Refuse what cannot arrive."""
        for name, least in (("rate", 0.0), ("prompt", 0.0), ("answer", 0.0), ("cv", 0.0)):
            if getattr(self, name) <= least:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be above {least:g}")
        if self.spread < 0:
            raise ValueError(f"spread is {self.spread}; it must not be negative")


def steady(load: Load, seconds: float, seed: int = 0, start: float = 0.0) -> Iterator[Arrival]:
    """A still load for so many seconds."""
    random = Random(f"steady {seed}")
    shape = 1 / load.cv**2
    at = start + random.expovariate(load.rate)
    while at < start + seconds:
        yield _request(random, at, load)
        at += random.gammavariate(shape, 1 / (load.rate * shape))


def phases(parts: Sequence[tuple[float, Load]], seed: int = 0) -> Iterator[Arrival]:
    """Loads one after another, each for its seconds."""
    start = 0.0
    for number, (seconds, load) in enumerate(parts):
        yield from steady(load, seconds, seed * 1000 + number, start)
        start += seconds


def alternating(one: Load, other: Load, phase_seconds: float, seconds: float, seed: int = 0) -> Iterator[Arrival]:
    """Two loads in turn, `phase_seconds` each."""
    parts: list[tuple[float, Load]] = []
    left = seconds
    while left > 1e-9:
        parts.append((min(phase_seconds, left), (one, other)[len(parts) % 2]))
        left -= phase_seconds
    return phases(parts, seed)


def sinusoid(load: Load, seconds: float, period: float, depth: float, seed: int = 0) -> Iterator[Arrival]:
    """A load whose rate swings by ±`depth` (0..1) of its mean over each `period`."""
    if not 0 <= depth <= 1:
        raise ValueError(f"depth is {depth}; it must be within 0 and 1")
    return thinned(
        steady(Load(load.rate * (1 + depth), load.prompt, load.answer, load.cv, load.spread), seconds, seed),
        lambda at: (1 + depth * sin(2 * pi * at / period)) / (1 + depth),
        seed,
    )


def thinned(arrivals: Iterable[Arrival], keep: Callable[[float], float], seed: int = 0) -> Iterator[Arrival]:
    """Each request stays with probability `keep(its time)`."""
    random = Random(f"thinned {seed}")
    return (arrival for arrival in arrivals if random.random() < keep(arrival.at))


def scaled(arrivals: Iterable[Arrival], factor: float, seed: int = 0) -> Iterator[Arrival]:
    """On the same clock `factor` times as many: each request is there as often as the whole part says, and once more with
    the probability of the rest."""
    random = Random(f"scaled {seed}")
    whole, rest = divmod(factor, 1)
    for arrival in arrivals:
        for _ in range(int(whole) + (random.random() < rest)):
            yield arrival


def jittered(arrivals: Sequence[Arrival], copies: int, within: float, seed: int = 0) -> list[Arrival]:
    """Several copies of a trace at once, each request moved by up to `within` seconds."""
    random = Random(f"jittered {seed}")
    return sorted(a._replace(at=a.at + random.random() * within) for _ in range(copies) for a in arrivals)


def repeated(arrivals: Sequence[Arrival], seconds: float) -> Iterator[Arrival]:
    """A trace over and over until `seconds` are over."""
    span = arrivals[-1].at if arrivals else 0.0
    turn = 0
    while span > 0 and turn * span < seconds:
        for arrival in arrivals:
            if arrival.at + turn * span >= seconds:
                return
            yield arrival._replace(at=arrival.at + turn * span)
        turn += 1


def following(rates: Sequence[tuple[float, float]], lengths: Sequence[tuple[int, int]], *, cv: float, speed: float = 1.0,
              scale: float = 1.0, start: float = 0.0, end: float | None = None, seed: int = 0) -> Iterator[Arrival]:  # fmt: skip
    """Arrivals that follow a table of (seconds, requests per second), each with a (prompt, answer) drawn from `lengths`.

    The table's clock runs `speed` times as fast; `scale` multiplies its rates (per second of the faster clock).
    """
    random = Random(f"following {seed}")
    shape = 1 / cv**2
    stop = rates[-1][0] if end is None else end
    at, place = 0.0, 0
    while True:
        while place + 1 < len(rates) and rates[place + 1][0] <= start + at * speed:
            place += 1
        at += random.gammavariate(shape, 1 / (shape * max(1e-3, rates[place][1] * scale)))
        if start + at * speed >= stop:
            return
        prompt, answer = random.choice(lengths)
        yield Arrival(at, prompt, answer)


def together(*streams: Iterable[Arrival]) -> Iterator[Arrival]:
    """Several streams as one, in order of time."""
    return merge(*streams)


def _request(random: Random, at: float, load: Load) -> Arrival:
    def length(mean: float, least: int, most: int) -> int:
        factor = random.lognormvariate(-load.spread * load.spread / 2, load.spread) if load.spread else 1.0
        return min(max(least, int(mean * factor)), most)

    return Arrival(at, length(load.prompt, 16, load.prompt_limit), length(load.answer, 2, load.answer_limit))

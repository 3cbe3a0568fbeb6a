"""The load of a run, chosen by words: a trace, ServeGen's clients, or something made up. Names as in `e2e.load`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from steelyard.sim import servegen, synthetic, trace
from steelyard.sim.requests import Arrival
from steelyard.sim.synthetic import Load

PATTERNS = ("poisson", "gamma", "sinusoid", "alternating")
SERVEGEN_HOURS = 24
PATTERN_SECONDS = 600.0  # of a pattern, where no duration is given


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was asked for. Seconds, requests per second, tokens."""

    trace: Path | None = None
    pattern: str | None = None
    rate: float = 10.0
    prompt_tokens: float = 1000.0
    output_tokens: float = 200.0
    other_rate: float | None = None
    other_prompt_tokens: float | None = None
    other_output_tokens: float | None = None
    variation: float = 0.5
    burstiness: float = 1.0
    period: float = 300.0
    swing: float = 0.5
    duration: float | None = None
    start: float = 0.0
    speed: float = 1.0
    scale: float = 1.0
    shared_cache: bool = False
    seed: int = 0


def arrivals(wanted: Wanted) -> Callable[[], Iterator[Arrival]]:
    """Give a function that plays the load from its start, as often as it is called. Raises ValueError."""
    if (wanted.trace is None) == (wanted.pattern is None):
        raise ValueError("say what arrives: either --trace or --pattern")
    if wanted.scale <= 0:
        raise ValueError(f"--scale is {wanted.scale}; it must be above 0")
    if wanted.trace is not None:
        return lambda: _scaled(_read(wanted), wanted)
    play = _made_up(wanted)
    return lambda: _scaled(play(), wanted)


def _read(wanted: Wanted) -> Iterator[Arrival]:
    path, start = wanted.trace or Path(), wanted.start
    if path.is_dir():
        span = SERVEGEN_HOURS * 3600 - start if wanted.duration is None else wanted.duration * wanted.speed
        return servegen.read(path, start=start, end=start + span, speed=wanted.speed, seed=wanted.seed)
    end = None if wanted.duration is None else start + wanted.duration * wanted.speed
    found = trace.read(path, speed=wanted.speed, start=start, end=end)
    return trace.with_shared_cache(found) if wanted.shared_cache else found


def _made_up(wanted: Wanted) -> Callable[[], Iterator[Arrival]]:
    if wanted.pattern not in PATTERNS:
        raise ValueError(f"--pattern is {wanted.pattern!r}; there are {', '.join(PATTERNS)}")
    seconds = PATTERN_SECONDS if wanted.duration is None else wanted.duration
    cv = wanted.burstiness if wanted.pattern != "poisson" else 1.0
    load = Load(wanted.rate, wanted.prompt_tokens, wanted.output_tokens, cv, wanted.variation)
    if wanted.pattern == "sinusoid":
        return lambda: synthetic.sinusoid(load, seconds, wanted.period, wanted.swing, wanted.seed)
    if wanted.pattern == "alternating":
        other = Load(
            wanted.other_rate or wanted.rate,
            wanted.other_prompt_tokens or wanted.prompt_tokens,
            wanted.other_output_tokens or wanted.output_tokens,
            cv,
            wanted.variation,
        )
        return lambda: synthetic.alternating(load, other, wanted.period, seconds, wanted.seed)
    return lambda: synthetic.steady(load, seconds, wanted.seed)


def _scaled(found: Iterator[Arrival], wanted: Wanted) -> Iterator[Arrival]:
    """Keep a share of the requests, or repeat each on the same clock."""
    if wanted.duration is not None:
        found = takewhile(lambda a: a.at < (wanted.duration or 0.0), found)
    if wanted.scale == 1:
        return found
    return synthetic.scaled(found, wanted.scale, wanted.seed)

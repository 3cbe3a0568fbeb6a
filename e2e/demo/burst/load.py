"""The burst's arrivals: calm, long prompts, long answers, calm again. Deterministic; nothing depends on answers."""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

from e2e.load import Lengths, Pattern, Schedule, Shape, synthetic


@dataclass(frozen=True)
class Phase:
    """A span of steady load: requests per second, mean tokens in and out."""

    name: str
    seconds: float
    rate: float
    prompt_tokens: float
    output_tokens: float


# After a burst the autoscaler keeps what it has for some four minutes (docs/design/autoscaler.md): the last phase outlasts that.
PHASES = (
    Phase("calm", 20, 1.0, 300, 20),
    Phase("rising", 30, 2.0, 500, 12),
    Phase("rising", 30, 4.0, 600, 12),
    Phase("long prompts", 40, 6.0, 600, 12),
    Phase("both", 15, 4.5, 400, 40),
    Phase("long answers", 60, 4.0, 200, 80),
    Phase("calm again", 285, 0.8, 300, 20),
)
VARIATION = 0.3


def schedule(phases: tuple[Phase, ...] = PHASES) -> Schedule:
    """Every arrival of the phases, one after the other."""
    starts = accumulate((phase.seconds for phase in phases), initial=0.0)
    return tuple(
        replace(one, at=one.at + start)
        for seed, (start, phase) in enumerate(zip(starts, phases, strict=False))
        for one in synthetic(
            Shape(Pattern.POISSON, rate=phase.rate),
            Lengths(phase.prompt_tokens, phase.output_tokens, VARIATION),
            phase.seconds,
            seed,
        )
    )


def phase_at(seconds: float) -> str:
    """What plays then."""
    ends = accumulate(phase.seconds for phase in PHASES)
    return next((phase.name for phase, end in zip(PHASES, ends, strict=True) if seconds < end), "over")


def write(arrivals: Schedule, path: Path) -> None:
    """As a trace that `steelyard simulate --trace` and `python -m e2e.load` read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(("at", "prompt_tokens", "output_tokens"))
        lines.writerows((f"{one.at:.3f}", one.prompt_tokens, one.output_tokens) for one in arrivals)

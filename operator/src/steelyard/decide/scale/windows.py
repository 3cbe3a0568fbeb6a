"""The most of the last W seconds (ski rental): a surplus is kept about as long as a start takes, so that giving it up and
asking again never costs more than twice what knowing the future would."""

from collections.abc import Sequence

Window = tuple[tuple[float, int], ...]  # (time, need), needs falling: the first is the most


def keep(window: Sequence[tuple[float, int]], time: float, need: int, seconds: float) -> Window:
    """Add the present need; forget what is older than `seconds` and what can never be the most again."""
    kept = [entry for entry in window if entry[0] >= time - seconds - 1e-9]
    while kept and kept[-1][1] <= need:
        kept.pop()
    return (*kept, (time, need))


def stood_still(window: Sequence[tuple[float, int]], time: float) -> Window:
    """The same window as if no time had passed since its newest entry: what was needed before is not forgotten."""
    passed = time - window[-1][0] if window else 0.0
    return tuple((at + passed, need) for at, need in window)

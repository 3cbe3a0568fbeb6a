"""From turns, hand-offs and starts to figures: medians, and medians of ratios within one turn."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from bench.engine.seen import TOKENS, Handoff, Start, Turn

GOAL = 0.9  # of llama.cpp with its defaults
T = TypeVar("T")


@dataclass(frozen=True)
class Speed:
    """One work: tokens per CPU-second of each, and how the engines stand to the bare loops, turn by turn."""

    work: str
    engine: float
    fast: float
    defaults: float
    settings: float
    to_defaults: float
    fast_to_defaults: float
    to_settings: float

    @property
    def reached(self) -> bool:
        """Whether the engine meets the goal as it is by default."""
        return self.to_defaults >= GOAL

    @property
    def reached_fast(self) -> bool:
        """Whether it meets the goal with fast numerics."""
        return self.fast_to_defaults >= GOAL


def speeds(turns: Sequence[Turn]) -> list[Speed]:
    """By work, in the order in which they were done."""
    found = []
    for work in dict.fromkeys(turn.work for turn in turns):
        some = [turn for turn in turns if turn.work == work]
        found.append(
            Speed(
                work,
                _median(some, lambda turn: turn.engine),
                _median(some, lambda turn: turn.fast),
                _median(some, lambda turn: turn.defaults),
                _median(some, lambda turn: turn.settings),
                _median(some, lambda turn: turn.engine / turn.defaults),
                _median(some, lambda turn: turn.fast / turn.defaults),
                _median(some, lambda turn: turn.engine / turn.settings),
            )
        )
    return found


def handoff(some: Sequence[Handoff]) -> dict[str, float]:
    """Of 1,000 tokens: megabytes, CPU-milliseconds of each step, and all steps against computing the tokens."""
    per = 1000 / TOKENS
    return {
        "megabytes": per * _median(some, lambda one: one.bytes) / 1e6,
        "serialize_ms": per * 1e3 * _median(some, lambda one: one.serialize),
        "move_ms": per * 1e3 * _median(some, lambda one: one.move),
        "restore_ms": per * 1e3 * _median(some, lambda one: one.restore),
        "compute_ms": per * 1e3 * _median(some, lambda one: one.compute),
        "share_of_compute": _median(some, lambda one: (one.serialize + one.move + one.restore) / one.compute),
    }


def start(some: Sequence[Start]) -> dict[str, float]:
    """Medians of a start."""
    return {
        "seconds": _median(some, lambda one: one.seconds),
        "cpu_seconds": _median(some, lambda one: one.cpu_seconds),
        "bare_cpu_seconds": _median(some, lambda one: one.bare_cpu_seconds),
        "resident_mib": _median(some, lambda one: one.resident) / 2**20,
    }


def _median(some: Sequence[T], of: Callable[[T], float]) -> float:
    return statistics.median(of(one) for one in some)

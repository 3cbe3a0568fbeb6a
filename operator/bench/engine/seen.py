"""What one turn of each measurement gives."""

from __future__ import annotations

from dataclasses import dataclass

TOKENS = 1000  # of a hand-off


@dataclass(frozen=True)
class Turn:
    """One work done by all four, in tokens per CPU-second: the engine as it is by default, the engine with fast numerics,
    llama.cpp with its defaults, and with our settings."""

    work: str
    engine: float
    fast: float
    defaults: float
    settings: float


@dataclass(frozen=True)
class Handoff:
    """One hand-off of `TOKENS` tokens: its bytes, and the CPU-seconds of each step and of computing the tokens instead."""

    bytes: int
    serialize: float
    move: float
    restore: float
    compute: float


@dataclass(frozen=True)
class Start:
    """One start: seconds and CPU-seconds until Ready, resident bytes then, and the CPU-seconds of the bare loop's start."""

    seconds: float
    cpu_seconds: float
    resident: int
    bare_cpu_seconds: float

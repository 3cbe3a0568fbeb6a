"""Whether a request met its objectives, as its client saw it: what attainment is counted from.

| outcome                                   | TTFT met                | TPOT met                          | counts |
|-------------------------------------------|-------------------------|-----------------------------------|--------|
| completed                                 | first token <= objective | mean per token <= objective      | yes    |
| completed, at most one token              | as above                | true: there is no gap to measure  | yes    |
| completed, an objective is absent         | true for that one       | true for that one                 | yes    |
| completed, a time is unknown              | false for that one      | false for that one                | yes    |
| failed (engine, time-out)                 | false                   | false                             | yes    |
| refused (429, 503, shed)                  | false                   | false                             | yes    |
| cancelled by the client                   | none                    | none                              | no     |
| invalid (the client's own mistake, 4xx)   | none                    | none                              | no     |

Standard library only.
"""

from bisect import bisect_right
from enum import StrEnum
from typing import NamedTuple


class Outcome(StrEnum):
    """How a request ended; every request ends in exactly one way."""

    COMPLETED = "completed"
    FAILED = "failed"
    REFUSED = "refused"
    CANCELLED = "cancelled"
    INVALID = "invalid"


class Met(StrEnum):
    """Whether an objective was met; NONE where the question does not arise."""

    TRUE = "true"
    FALSE = "false"
    NONE = "none"


class Objectives(NamedTuple):
    """Seconds to the first token and mean seconds per further token; None where there is no objective."""

    ttft_seconds: float | None
    tpot_seconds: float | None


class Timing(NamedTuple):
    """What was measured of one request: seconds, and tokens of the answer."""

    ttft_seconds: float | None
    tpot_seconds: float | None
    answer_tokens: int


LENGTH_CLASSES = ("0-255", "256-1023", "1024-4095", "4096-16383", "16384+")
_LENGTH_BOUNDS = (256, 1024, 4096, 16384)


def length_class(prompt_tokens: float) -> str:
    """Name the class of a prompt's length, so that attainment can be read by length."""
    return LENGTH_CLASSES[bisect_right(_LENGTH_BOUNDS, prompt_tokens)]


def judge(outcome: Outcome, timing: Timing, objectives: Objectives) -> tuple[Met, Met]:
    """Return (TTFT met, TPOT met) by the table above."""
    if outcome is not Outcome.COMPLETED:
        met = Met.NONE if outcome in (Outcome.CANCELLED, Outcome.INVALID) else Met.FALSE
        return met, met
    ttft = _within(timing.ttft_seconds, objectives.ttft_seconds)
    tpot = Met.TRUE if timing.answer_tokens <= 1 else _within(timing.tpot_seconds, objectives.tpot_seconds)
    return ttft, tpot


def mean_seconds_per_token(first_seconds: float, last_seconds: float, answer_tokens: int) -> float | None:
    """TPOT: the mean time of each token after the first; None for answers of at most one token."""
    return (last_seconds - first_seconds) / (answer_tokens - 1) if answer_tokens > 1 else None


def _within(seconds: float | None, objective: float | None) -> Met:
    if objective is None:
        return Met.TRUE
    return Met.TRUE if seconds is not None and seconds <= objective else Met.FALSE

"""The truth table of met and not met, row by row."""

import pytest
from steelyard.decide.queue.judge import (
    LENGTH_CLASSES,
    Met,
    Objectives,
    Outcome,
    Timing,
    judge,
    length_class,
    mean_seconds_per_token,
)

BOTH = Objectives(0.5, 0.05)
YES, NO, NONE = Met.TRUE, Met.FALSE, Met.NONE
GOOD, SLOW_START, SLOW_TOKENS = Timing(0.4, 0.04, 10), Timing(0.6, 0.04, 10), Timing(0.4, 0.06, 10)


@pytest.mark.parametrize(
    ("because", "outcome", "timing", "objectives", "met"),
    [
        ("both met", Outcome.COMPLETED, GOOD, BOTH, (YES, YES)),
        ("exactly at the objective is met", Outcome.COMPLETED, Timing(0.5, 0.05, 10), BOTH, (YES, YES)),
        ("TTFT missed alone", Outcome.COMPLETED, SLOW_START, BOTH, (NO, YES)),
        ("TPOT missed alone", Outcome.COMPLETED, SLOW_TOKENS, BOTH, (YES, NO)),
        ("one token has no gap", Outcome.COMPLETED, Timing(0.4, None, 1), BOTH, (YES, YES)),
        ("an empty answer has no gap", Outcome.COMPLETED, Timing(0.4, None, 0), BOTH, (YES, YES)),
        ("no TTFT objective", Outcome.COMPLETED, SLOW_START, Objectives(None, 0.05), (YES, YES)),
        ("no TPOT objective", Outcome.COMPLETED, SLOW_TOKENS, Objectives(0.5, None), (YES, YES)),
        ("an unknown first token is not met", Outcome.COMPLETED, Timing(None, None, 10), BOTH, (NO, NO)),
        ("failed is not met, however fast", Outcome.FAILED, GOOD, BOTH, (NO, NO)),
        ("failed is not met without objectives either", Outcome.FAILED, GOOD, Objectives(None, None), (NO, NO)),
        ("refused is not met", Outcome.REFUSED, Timing(None, None, 0), BOTH, (NO, NO)),
        ("cancelled does not count", Outcome.CANCELLED, GOOD, BOTH, (NONE, NONE)),
        ("the client's own mistake does not count", Outcome.INVALID, GOOD, BOTH, (NONE, NONE)),
    ],
)
def test_judge(because: str, outcome: Outcome, timing: Timing, objectives: Objectives, met: tuple[Met, Met]) -> None:
    assert judge(outcome, timing, objectives) == met, because


@pytest.mark.parametrize(
    ("tokens", "name"), [(0, "0-255"), (255, "0-255"), (256, "256-1023"), (1024, "1024-4095"), (9e9, "16384+")]
)
def test_length_class(tokens: float, name: str) -> None:
    assert length_class(tokens) == name
    assert name in LENGTH_CLASSES


def test_tpot_is_the_mean_over_the_tokens_after_the_first() -> None:
    assert mean_seconds_per_token(1.0, 2.0, 11) == pytest.approx(0.1)
    assert mean_seconds_per_token(1.0, 2.0, 1) is None

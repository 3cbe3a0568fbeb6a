"""What guesses are worth: from how many are accepted to tokens a step and the expected speed-up.

If each guess is accepted with probability a, independently, a step of n guesses yields (arXiv 2211.17192)
    E[tokens] = (1 − a^(n+1)) / (1 − a)
and with a guess costing c of a plain decode step, and verification v of one, the speed-up is E[tokens] / (n·c + v). v is 1 where
decode is bound by reading weights, and grows with n·batch beyond that. These are plain functions, for a planner too.
"""

from __future__ import annotations

from typing import NamedTuple


class Acceptance(NamedTuple):
    """For each place in a guess, how often it was reached and how often accepted; and the number of steps."""

    reached: tuple[int, ...]
    accepted: tuple[int, ...]
    steps: int

    @staticmethod
    def none(guesses: int) -> Acceptance:
        """Before the first step."""
        return Acceptance((0,) * guesses, (0,) * guesses, 0)

    def after(self, guessed: int, kept: int) -> Acceptance:
        """With one more step in which `kept` of `guessed` were accepted: the place after the last kept one was reached too."""
        reached = tuple(count + (place < min(guessed, kept + 1)) for place, count in enumerate(self.reached))
        accepted = tuple(count + (place < kept) for place, count in enumerate(self.accepted))
        return Acceptance(reached, accepted, self.steps + 1)

    def rate(self) -> float | None:
        """The share of judged guesses that were accepted; None when none was judged."""
        judged = sum(self.reached)
        return sum(self.accepted) / judged if judged else None

    def tokens_per_step(self) -> float | None:
        """Tokens a step yielded: its accepted guesses and one of the model's own; None before the first step."""
        return 1 + sum(self.accepted) / self.steps if self.steps else None


def expected_tokens(rate: float, guesses: int) -> float:
    """E[tokens] a step, for acceptance `rate` in 0 … 1 and `guesses` ≥ 0."""
    if not 0 <= rate <= 1 or guesses < 0:
        raise ValueError(f"rate is {rate} and guesses {guesses}; rate must be between 0 and 1 and guesses at least 0")
    return sum(rate**place for place in range(guesses + 1))


def speedup(rate: float, guesses: int, guess_cost: float, verify_cost: float = 1.0) -> float:
    """How many times faster than plain decoding; costs are in plain decode steps."""
    if guess_cost < 0 or verify_cost <= 0:
        raise ValueError(f"guess_cost is {guess_cost} and verify_cost {verify_cost}; they must be ≥ 0 and > 0")
    return expected_tokens(rate, guesses) / (guesses * guess_cost + verify_cost)


def best_guesses(rate: float, guess_cost: float, most: int = 16, verify_cost: float = 1.0) -> int:
    """The number of guesses, up to `most`, with the largest speed-up; 0 when guessing does not pay."""
    return max(range(most + 1), key=lambda guesses: speedup(rate, guesses, guess_cost, verify_cost))

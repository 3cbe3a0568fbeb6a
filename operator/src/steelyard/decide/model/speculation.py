"""What guessed tokens do to an engine's steps: speculative decoding as a latency model of the same form.

    tokens a step   E = 1 + a + … + aⁿ for n guesses, each accepted with probability a if those before it were (arXiv 2211.17192)
    a step          n guesses at the share c of a plain step each, and one pass that reads n + 1 tokens of every sequence:
                    (1 + n·c) · (g0 + g1·u + g2·u²) + (1 + n + n·c) · g3·batch
    a token         step / E

Where steps are bound by reading weights, g3 is small and the gain is E / (1 + n·c); at large batches the checks of guesses that
are not accepted cost more than they give.
"""

from dataclasses import dataclass, replace

from steelyard.decide.model.latency import Polynomial


@dataclass(frozen=True, slots=True)
class Guessing:
    """How many tokens are guessed a step, the share of them that is accepted, and what one guess costs in plain steps."""

    acceptance: float
    guesses: int
    cost: float

    @property
    def tokens(self) -> float:
        """Tokens that a step yields on average: accepted guesses and one of the model's own."""
        return sum(self.acceptance**place for place in range(self.guesses + 1))


def guessed(model: Polynomial, guessing: Guessing) -> Polynomial:
    """The same engine with guesses: its time per token instead of its time per step."""
    drafting = guessing.guesses * guessing.cost
    g0, g1, g2, g3 = (term / guessing.tokens for term in model.decode)
    shared, own = 1 + drafting, 1 + guessing.guesses + drafting
    return replace(model, decode=(g0 * shared, g1 * shared, g2 * shared, g3 * own))

"""A stretch of decode steps with one batch, in closed form.

With n sequences the KV use grows by n/C a step, so step j (from 0) takes α + β·j + γ·j² seconds, and k steps take

    α·k + β·k(k−1)/2 + γ·(k−1)k(2k−1)/6.
"""

from math import ceil, sqrt

from steelyard.sim.engine import Engine

_ROUNDING = 1e-9  # seconds
_NEWTON_STEPS = 4  # from the quadratic's root; the cubic term is small


class Stretch:
    """`steps` may be lowered while it runs; the rest is fixed."""

    __slots__ = ("alpha", "beta", "gamma", "steps")

    def __init__(self, engine: Engine, sequences: int, kv_tokens: int, steps: int) -> None:
        g0, g1, g2, g3 = engine.terms(sequences)
        use = (kv_tokens + sequences * engine.block_tokens / 2) / engine.kv_tokens
        growth = sequences / engine.kv_tokens
        self.alpha = g0 + g1 * use + g2 * use * use + g3 * sequences
        self.beta = growth * (g1 + 2 * g2 * use)
        self.gamma = g2 * growth * growth
        self.steps = steps

    def seconds(self, steps: int) -> float:
        """Seconds that the first `steps` steps take."""
        pairs = steps * (steps - 1)
        return self.alpha * steps + self.beta * pairs / 2 + self.gamma * pairs * (2 * steps - 1) / 6

    def steps_until(self, elapsed: float) -> int:
        """The fewest steps that take at least `elapsed` seconds (a rounding error aside), at most all."""
        elapsed -= _ROUNDING
        if elapsed <= self.alpha:
            return 1 if elapsed > 0 else 0
        steps = min(self.steps, ceil(self._root(elapsed)))
        while steps > 1 and self.seconds(steps - 1) >= elapsed:
            steps -= 1
        while steps < self.steps and self.seconds(steps) < elapsed:
            steps += 1
        return steps

    def steps_within(self, elapsed: float) -> int:
        """The most steps that are over after `elapsed` seconds, at most all."""
        steps = self.steps_until(elapsed)
        return steps if steps and self.seconds(steps) <= elapsed + _ROUNDING else max(0, steps - 1)

    def _root(self, elapsed: float) -> float:
        """Solve for the (fractional) number of steps that take `elapsed`."""
        alpha, beta, gamma = self.alpha, self.beta, self.gamma
        half = alpha - beta / 2
        square = half * half + 2 * beta * elapsed
        root = half + sqrt(square) if square > 0 else 0.0
        k = 2 * elapsed / root if root > 1e-15 else elapsed / alpha  # this form of the root is stable for small beta
        if gamma:
            for _ in range(_NEWTON_STEPS):
                pairs = k * (k - 1)
                error = alpha * k + beta * pairs / 2 + gamma * pairs * (2 * k - 1) / 6 - elapsed
                slope = alpha + beta * (k - 0.5) + gamma * (k * k - k + 1 / 6)
                if slope <= 0:
                    break
                k -= error / slope
        return min(max(k, 1.0), float(self.steps))

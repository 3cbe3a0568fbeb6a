"""Choosing the next token from logits: greedy, temperature and top-p, reproducible by seed. NumPy only.

A seeded request draws from a counter-based stream keyed by (seed, index of the token in the answer), so its text does
not depend on which requests share the batch, on preemption, or on which pod decodes it.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to sample: `temperature` 0 is greedy; `top_p` in (0, 1]; `seed` is always set, at random if not by the client.

    End tokens are forbidden before `min_tokens` tokens were generated. `grammar` is the form that the answer
    has to follow, as the backend writes it.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    seed: int = 0
    min_tokens: int = 0
    grammar: str | None = None


class Constraint(Protocol):
    """What an answer's grammar says of the next token."""

    def allowed(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the logits with −inf where a token is forbidden."""

    def allows(self, token: int) -> bool:
        """Say whether this token is allowed: much cheaper than all of them."""


def choose(
    logits: NDArray[np.float32],
    sampling: Sampling,
    index: int,
    end_tokens: Collection[int],
    constraint: Constraint | None = None,
) -> int:
    """Return the token id for place `index` of the answer, given the logits (vocabulary,) of the model."""
    early = index < sampling.min_tokens
    if constraint is not None:
        best = int(logits.argmax())
        if sampling.temperature == 0 and not early and constraint.allows(best):
            return best
        logits = constraint.allowed(logits)
        early = early and bool(np.isfinite(np.delete(logits, list(end_tokens))).any())  # a form that is complete ends
    if early:
        logits = logits.copy()
        logits[list(end_tokens)] = -np.inf
    if sampling.temperature == 0:
        return int(logits.argmax())
    scaled = logits.astype(np.float64) / sampling.temperature
    weights = np.exp(scaled - scaled.max())
    key = np.array([sampling.seed % 2**64, index], np.uint64)
    draw = np.random.Generator(np.random.Philox(key=key)).random()
    if sampling.top_p == 1:
        return _pick(weights, draw)
    order = np.argsort(-weights, kind="stable")
    cumulative = np.cumsum(weights[order])
    kept = int(np.searchsorted(cumulative, sampling.top_p * cumulative[-1])) + 1
    nucleus = order[:kept]
    return int(nucleus[_pick(weights[nucleus], draw)])


def _pick(weights: NDArray[np.float64], draw: float) -> int:
    """Invert the distribution function of unnormalised `weights` at `draw` in [0, 1)."""
    cumulative = np.cumsum(weights)
    return min(int(np.searchsorted(cumulative, draw * cumulative[-1], side="right")), len(weights) - 1)

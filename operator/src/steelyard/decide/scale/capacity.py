"""What one replica can do within the objectives, as far as it is known now."""

from dataclasses import dataclass
from math import inf

from steelyard.decide.model.latency import Polynomial
from steelyard.decide.scale import fits
from steelyard.decide.scale.decision import Learnt
from steelyard.decide.scale.signals import Engine, Objectives

FURTHEST = 10.0  # times off its prior a velocity may be: a fit of few terms can make the shortest pass the fastest, without limit
VELOCITY_SHARE = 0.9  # of the best pass: passes are not all of the best size
STEP_SHARE = 0.95  # of the TPOT objective
KV_SHARE = 0.85  # of KV capacity: sequences grow while they run
SEQUENCES_SHARE = 0.9  # of the engine's limit
ADMITTED_STEP_SHARE, ADMITTED_KV_SHARE = (
    0.98,
    0.95,
)  # what may be let in goes nearer to the limits than what is planned for


@dataclass(frozen=True, slots=True)
class Capacity:
    """One replica; `velocity` in uncached prompt tokens per second of prefill at full use."""

    model: Polynomial
    velocity: float
    max_sequences: int
    tpot: float | None
    guessed: bool = False  # nothing is known of decode steps yet, neither beforehand nor measured

    def held(self, context: float) -> int:
        """R(c): the most sequences of that mean context (tokens) that one decode replica is planned to hold within TPOT,
        KV and its own limit; at least 1."""
        return self._most(context, STEP_SHARE, KV_SHARE, SEQUENCES_SHARE)

    def admitted(self, context: float) -> int | None:
        """The most that the gateways should let one decode replica hold; at least 1. None: a guess would be no limit."""
        return None if self.guessed else self._most(context, ADMITTED_STEP_SHARE, ADMITTED_KV_SHARE, 1.0)

    def _most(self, context: float, step_share: float, kv_share: float, sequences_share: float) -> int:
        step = inf if self.tpot is None else step_share * self.tpot
        most = min(sequences_share * self.max_sequences, kv_share * self.model.kv_tokens / max(context, 1.0))
        low, high = 1, max(1, int(most))
        while low < high:
            middle = (low + high + 1) // 2
            if self.model.decode_step_seconds(middle, context) <= step:
                low = middle
            else:
                high = middle - 1
        return low

    def token_rate(self, held: int, context: float) -> float:
        """Output tokens per second of a replica that holds R sequences."""
        return held / self.model.decode_step_seconds(held, context)


def capacity(engine: Engine, learnt: Learnt, objectives: Objectives, most: float = inf) -> Capacity:
    """Put the prior and what was learnt together; `most` tokens per second are what full replicas were seen to do."""
    model = fits.fitted(engine.prior, learnt.prefill, learnt.decode, engine.max_batch_tokens, engine.max_sequences)
    beforehand = fits.best_velocity(engine.prior.prefill, engine.max_batch_tokens)
    best = fits.best_velocity(model.prefill, engine.max_batch_tokens)
    velocity = min(VELOCITY_SHARE * min(best, FURTHEST * beforehand), max(most, beforehand / FURTHEST))
    guessed = engine.guessed and learnt.decode.samples < fits.ENOUGH_SAMPLES
    return Capacity(model, velocity, engine.max_sequences, objectives.tpot, guessed)

"""What share of requests a pool of replicas serves within the objectives, from capacities alone.

    prefill     M/G/c: P(wait > t) = C(c, a) · e^(−t/θ), θ = E[S]·(1 + cv²) / 2 / (c·(1 − ρ)), C Erlang's formula, a the offered
                load; a request is in time if wait + its own pass + hand-off ≤ TTFT
    decode      b sequences a replica follow from Little's law, b = λ·answer·step(b) / replicas; a request is in time while the
                Poisson number of sequences stays within what the replicas may hold: the most whose step meets TPOT and
                whose KV fits
    aggregated  decode steps are stretched by the passes of others: TPOT = step + K·pass / answer with K Poisson; prefill
                waits as in M/G/c, and its pass takes the step with it

First come, first served everywhere: the gateway's own order does better, and the simulator, which has it, has the last word.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import erf, exp, floor, sqrt
from typing import Self

from steelyard.decide.feasibility.inputs import Targets
from steelyard.decide.goodput.workload import Lengths, Workload
from steelyard.decide.model.latency import LatencyModel

KV_SHARE = 0.95  # of the capacity: sequences grow while they are written
STEP_SHARE = 0.98  # of the TPOT objective
ROUNDS = 30
BISECTIONS = 14  # a rate to one part in ten thousand of its bracket


@dataclass(frozen=True, slots=True)
class Engine:
    """One replica of a pool: its times, and how much it holds. `lanes`: prompts that it reads side by side (data-parallel
    copies and pipeline stages)."""

    model: LatencyModel
    kv_tokens: float
    max_sequences: int = 256
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class Passes:
    """Seconds of each request's own pass, with their mean and mean square."""

    seconds: tuple[float, ...]
    mean: float
    square: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Self:
        """Take the seconds."""
        return cls(tuple(seconds), sum(seconds) / len(seconds), sum(value * value for value in seconds) / len(seconds))


def prefill_attainment(engine: Engine, replicas: int, load: Workload, ttft: float | None, handoff: float) -> float:
    """Share of requests whose first token is in time."""
    passes = _passes(engine, load.lengths)
    if ttft is None:
        return 1.0 if load.rate * passes.mean < replicas * engine.lanes else 0.0
    return _in_time(passes, ttft - handoff, load.rate, replicas * engine.lanes)


@lru_cache(maxsize=512)
def _passes(engine: Engine, lengths: Lengths) -> Passes:
    return Passes.of([engine.model.prefill_seconds([prompt]) for prompt, _ in lengths.pairs])


def _in_time(passes: Passes, objective: float, rate: float, servers: int) -> float:
    """Mean over requests of P(wait + own pass ≤ objective) in M/G/c."""
    offered = rate * passes.mean
    if offered >= servers:
        return 0.0
    waiting = erlang(servers, offered)
    span = passes.square / passes.mean / 2 / (servers - offered)
    left = [objective - value for value in passes.seconds]
    return sum(1 - waiting * exp(-min(t / span, 700.0)) for t in left if t >= 0) / len(left)


@lru_cache(maxsize=4096)
def slots(engine: Engine, context: float, tpot: float | None) -> int:
    """The most sequences of that mean context that one replica may hold; 0 where not even one keeps the objective."""
    most = min(engine.max_sequences, floor(KV_SHARE * engine.kv_tokens / max(context, 1.0)))
    low, high = 0, most
    while low < high and tpot is not None:
        middle = (low + high + 1) // 2
        if engine.model.decode_step_seconds(middle, context) <= STEP_SHARE * tpot:
            low = middle
        else:
            high = middle - 1
    return most if tpot is None else low


def held(engine: Engine, replicas: int, load: Workload) -> float:
    """Mean number of sequences of the whole pool, by Little's law; infinite where steps grow faster than they write."""
    wanted, context = load.rate * load.lengths.answer, load.context
    found = wanted * engine.model.decode_step_seconds(1, context)
    for _ in range(ROUNDS):
        each = found / replicas
        if each > 4 * engine.max_sequences:
            return float("inf")
        before, found = found, wanted * engine.model.decode_step_seconds(max(each, 1.0), context)
        if abs(found - before) <= 1e-4 * found:
            break
    return found


def decode_attainment(engine: Engine, replicas: int, load: Workload, tpot: float | None) -> float:
    """Share of requests whose tokens come in time."""
    most = replicas * slots(engine, load.context, tpot)
    return poisson_at_most(most, held(engine, replicas, load)) if most else 0.0


def aggregated_attainment(engine: Engine, replicas: int, load: Workload, targets: Targets) -> float:
    """Share of requests that meet both where each replica reads and writes, cutting prompts between steps."""
    each, context, answer = load.rate / replicas, load.context, load.lengths.answer
    passes = _extra(engine, load.lengths)
    busy = each * passes.mean
    if busy >= 1:
        return 0.0
    batch = step = 0.0
    for _ in range(ROUNDS):
        step = engine.model.decode_step_seconds(max(batch, 1.0), context)
        before, batch = batch, each * answer * step / (1 - busy)
        if batch > 2 * engine.max_sequences:
            return 0.0
        if abs(batch - before) <= 1e-4 * batch:
            break
    room = min(engine.max_sequences, floor(KV_SHARE * engine.kv_tokens / max(context, 1.0)))
    found = poisson_at_most(room, batch)
    if targets.tpot is not None:
        spare = STEP_SHARE * targets.tpot - step
        if spare < 0:
            return 0.0
        shares = [
            poisson_at_most(floor(spare * written / passes.mean), each * written * step / (1 - busy))
            for _, written in load.lengths.pairs
        ]
        found *= sum(shares) / len(shares)
    if targets.ttft is None:
        return found
    return found * _in_time(_stretched(passes, step), targets.ttft - step, load.rate, replicas)


@lru_cache(maxsize=512)
def _extra(engine: Engine, lengths: Lengths) -> Passes:
    """What reading a prompt adds to steps that run anyway: the weights are read once for both."""
    alone = engine.model.prefill_seconds([1])
    return Passes.of([max(engine.model.prefill_seconds([p]) - alone, 1e-6) for p, _ in lengths.pairs])


def _stretched(passes: Passes, step: float) -> Passes:
    return Passes(
        tuple(value + step for value in passes.seconds),
        passes.mean + step,
        passes.square + 2 * passes.mean * step + step * step,
    )


def most_rate(attained: Callable[[float], float], wanted: float, start: float) -> float:
    """The highest rate at which `attained(rate)` is at least `wanted`; 0 where none is. Attainment falls with the rate."""
    low, high = 0.0, start
    while attained(high) >= wanted:
        low, high = high, high * 2
        if high > 1e7:
            return low
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if attained(middle) >= wanted else (low, middle)
    return low


@lru_cache(maxsize=65_536)
def erlang(servers: int, offered: float) -> float:
    """Erlang's C: probability that an arrival finds all servers busy, by the recursion of the loss formula."""
    inverse = 1.0
    for n in range(1, servers + 1):
        inverse = 1.0 + inverse * n / offered if offered > 0 else float("inf")
    blocked = 1.0 / inverse
    use = offered / servers
    return blocked / (1 - use * (1 - blocked))


def poisson_at_most(most: int, mean: float) -> float:
    """P(Poisson ≤ most); by the normal law, with a correction for the step, where it is large."""
    if most < 0 or mean == float("inf"):
        return 0.0
    away = (most + 0.5 - mean) / sqrt(mean) if mean > 0 else 9.0
    if abs(away) > 8 or mean > 60:
        return 0.5 * (1 + erf(away / sqrt(2)))
    term = found = exp(-mean)
    for k in range(1, most + 1):
        term *= mean / k
        found += term
    return min(1.0, found)

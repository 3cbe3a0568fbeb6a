"""Play a sized deployment: the simulator has the gateway's own queues, so its word counts more than the estimate's.

A replica with data-parallel copies or pipeline stages is played as that many smaller ones, each with its share of the KV: a
prompt is read by one copy, and a sequence stays with one. In one pool that does both, the weights are read once for a step
and the prompts that share it, so a pass costs only what its tokens add.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from steelyard.decide.goodput.candidates import Replica
from steelyard.decide.goodput.search import Goal, Option
from steelyard.decide.queue.judge import Objectives
from steelyard.sim.engine import Engine
from steelyard.sim.requests import Arrival
from steelyard.sim.run import Result, simulate
from steelyard.sim.scenario import AGGREGATED, DECODE, PREFILL, Scenario

Arrivals = Callable[[], Iterable[Arrival]]
GROWTHS = 6
LEAST_TERM = 1e-9


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """An option as played: shares of requests that met TTFT, TPOT and both."""

    option: Option
    ttft: float
    tpot: float
    both: float
    ttft_p50: float | None
    ttft_p99: float | None
    tpot_p50: float | None
    tpot_p99: float | None


def play(option: Option, arrivals: Arrivals, goal: Goal, seed: int = 0) -> Rehearsed:
    """Simulate one option under a load."""
    result = simulate(scenario(option, goal, seed), arrivals())
    record = result.record
    ended = max(record.ended, 1)
    return Rehearsed(
        option,
        record.ttft_met / ended,
        record.tpot_met / ended,
        result.attainment,
        *_percentiles(result, "ttft"),
        *_percentiles(result, "tpot"),
    )


def _percentiles(result: Result, name: str) -> tuple[float | None, float | None]:
    histogram = getattr(result.record, name)
    return histogram.percentile(0.5), histogram.percentile(0.99)


def scenario(option: Option, goal: Goal, seed: int = 0) -> Scenario:
    """The service and its world."""
    objectives = Objectives(goal.targets.ttft, goal.targets.tpot)
    if option.aggregated:
        one = engine(option.decode, goal, shared=True)
        return Scenario(
            engine=one,
            objectives=objectives,
            initial={AGGREGATED: option.counts[0] * _copies(option.decode)},
            seed=seed,
        )
    prefill, decode = option.counts
    reading, writing = engine(option.prefill, goal), engine(option.decode, goal)
    step = writing.step_seconds(1, 0)
    return Scenario(
        engine=writing,
        engines={PREFILL: reading} if reading != writing else {},
        objectives=objectives,
        initial={PREFILL: prefill * _copies(option.prefill), DECODE: decode * _copies(option.decode)},
        handoff_seconds=1.5 * step + reading.transfer_seconds(1000),
        seed=seed,
    )


def _copies(replica: Replica) -> int:
    return replica.engine.lanes


def engine(replica: Replica, goal: Goal, *, shared: bool = False) -> Engine:
    """One copy of a replica as the simulator knows engines; `shared`: its passes share steps that run anyway."""
    copies = _copies(replica)
    model = replica.profile
    a, b, c = model.prefill
    g0, g1, g2, g3 = model.decode
    moved = model.kv_bytes_per_token / (goal.network_bytes * replica.accelerators)
    return Engine(
        prefill=(0.0 if shared else a, max(b, LEAST_TERM), c),
        decode=(g0, g1, g2, g3 * copies),
        kv_tokens=max(1, int(replica.engine.kv_tokens) // copies),
        batch_tokens=replica.side.batch_tokens,
        max_sequences=max(1, replica.engine.max_sequences // copies),
        transfer=(0.0, moved),
    )


def settled(option: Option, arrivals: Arrivals, goal: Goal, budget: int = GROWTHS) -> Rehearsed:
    """Play an option and move its numbers to the fewest with which the promise is kept, within `budget` plays.

    What is missing grows by one; where nothing is missing, each role is tried with one fewer.
    """
    best = play(option, arrivals, goal)
    for _ in range(budget):
        if best.both >= goal.attainment:
            break
        best = play(_changed(best.option, _short(best), +1), arrivals, goal)
        budget -= 1
    if best.both < goal.attainment:
        return best
    for role in range(len(best.option.counts)):
        while budget > 0 and best.option.counts[role] > 1:
            budget -= 1
            fewer = play(_changed(best.option, role, -1), arrivals, goal)
            if fewer.both < goal.attainment:
                break
            best = fewer
    return best


def _short(found: Rehearsed) -> int:
    """Which pool is too small: the one whose objective is met less."""
    return 0 if found.option.aggregated or found.ttft < found.tpot else 1


def _changed(option: Option, role: int, by: int) -> Option:
    counts = list(option.counts)
    counts[role] += by
    return replace(option, counts=tuple(counts))


def ratios(option: Option, total: int) -> list[tuple[int, int]]:
    """All ratios of prefill and decode replicas that use so many accelerators, or as many as whole replicas leave."""
    found = []
    for prefill in range(1, total // option.prefill.accelerators + 1):
        left = (total - prefill * option.prefill.accelerators) // option.decode.accelerators
        if left >= 1:
            found.append((prefill, left))
    return found

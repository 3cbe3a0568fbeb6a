"""Requests that no gateway of ours sees, where another router sends them: what the engines' own figures tell of them.

    arrivals of a span    what the prefill replicas finished, and by how much their queues grew
    room for bursts       a replica that gets its share of random arrivals is T seconds behind with probability
                          exp(−2 (v − λ) v·T / σ²) (heavy traffic: Kingman, 1962); to hold that to eps, all need
                          λ + σ² ln(1/eps) / (2 v·T) tokens per second, σ² = K · requests per second · (mean tokens)²
    speed                 what a replica does in which somebody waits all the time
    late                  the share of the prefill replicas in which so much waits that who comes now is late

Nobody judges these requests, so that beta follows what is late.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import exp, inf, log

from steelyard.decide.scale.decision import Full, Queues
from steelyard.decide.scale.learning import BETA_LEAST, TICK_SECONDS
from steelyard.decide.scale.signals import Phase, Replica, Signals

BURSTINESS = 4.0  # K: 2 where lengths spread like an exponential, and twice that for arrivals in bursts
GROWTH_SECONDS = 20.0  # over which the growth of queues is taken
FULL_SECONDS = 25.0  # with somebody waiting until a rate is a speed: longer than the span of the rate
FULL_SHARE = 0.5  # of the replicas that prefill, which must be full: one alone may be ill
FULL_WEIGHT = 0.3  # of the newest such speed in the smoothed one
FADE_SECONDS = 1800.0  # in which the bound on the speed grows by e
BETA_MOST = 2.5
BETA_UP, BETA_DOWN = 0.2, 0.02  # a tick of 5 s: ten without anybody late take back what one with too many added


def queues(before: Sequence[Queues], signals: Signals, reading: Iterable[Replica]) -> tuple[Queues, ...]:
    """Add what waits in the replicas that prefill, where all of them tell; forget what is too old to be compared with."""
    now = signals.time
    kept = tuple(q for q in before if now - 1.5 * GROWTH_SECONDS <= q.time < now)
    waits = {replica.name: replica.waiting for replica in reading}
    known = {name: wait for name, wait in waits.items() if wait is not None}
    return (*kept, Queues(now, known)) if len(known) == len(waits) else kept


def with_queues(signals: Signals, seen: Sequence[Queues]) -> Signals:
    """Correct the rate by the growth of the queues: engines that are full finish what they can, however much arrives.

    `seen` ends with this tick's. Replicas that are not ready any more took theirs with them; a new one began with none.
    """
    now = signals.time
    if signals.uncached_rate is None or signals.mean_uncached is None or len(seen) < 2 or seen[-1].time != now:
        return signals
    then = next((q for q in reversed(seen) if q.time <= now - GROWTH_SECONDS), seen[0])
    more = sum(wait - then.waiting.get(name, 0.0) for name, wait in seen[-1].waiting.items())
    growth = more * signals.mean_uncached / (now - then.time)
    return replace(signals, uncached_rate=max(0.0, signals.uncached_rate + growth))


def burst_rate(signals: Signals, velocity: float, patience: float, allowed: float) -> float:
    """Tokens per second to keep for bursts beyond the mean, so that at most `allowed` of the requests wait longer than
    `patience` seconds in replicas of `velocity` tokens per second; 0 where the requests are not known."""
    if signals.request_rate is None or signals.mean_uncached is None or not 0 < allowed < 1:
        return 0.0
    spread = BURSTINESS * signals.request_rate * signals.mean_uncached**2
    return spread * log(1 / allowed) / (2 * velocity * patience)


def late(signals: Signals, reading: Sequence[Replica], velocity: float, patience: float) -> float | None:
    """The share of the replicas that prefill whose queue takes longer than `patience` seconds; None where unknown."""
    waits = [replica.waiting for replica in reading]
    if not waits or None in waits or signals.mean_uncached is None:
        return None
    return sum(w * signals.mean_uncached > patience * velocity for w in waits if w is not None) / len(waits)


def feedback(beta: float, share: float | None, allowed: float, elapsed: float, *, elsewhere: bool) -> float:
    """Move beta by the `share` of the replicas that are late now, of which `allowed` may be. It does not rise while
    something else explains it (`elsewhere`): replicas that were asked for start, or decode makes requests wait."""
    if share is None:
        return beta
    ticks = min(1.0, elapsed / TICK_SECONDS)
    if share > allowed:
        return beta if elsewhere else max(beta, min(BETA_MOST, beta * (1 + BETA_UP * ticks)))
    return max(BETA_LEAST, beta * (1 - BETA_DOWN * ticks))


def full_since(before: Mapping[str, float], signals: Signals, role: str) -> dict[str, float]:
    """Since when somebody has waited in each ready replica of a role, as every tick saw it."""
    return {
        r.name: before.get(r.name, signals.time)
        for r in signals.replicas
        if r.phase is Phase.READY and r.role == role and r.waiting is not None and r.waiting >= 1
    }


def full(before: Full | None, since: Mapping[str, float], signals: Signals, role: str) -> Full | None:
    """Take in how fast the full replicas of a role are, where at least half of its ready ones are full.

    Prompts that share passes each tell of the whole pass as their own time; a fit to that can make a replica a hundred times
    as fast as it is, and then nothing is asked for, whatever waits. This bounds it.
    """
    ready = [r for r in signals.replicas if r.phase is Phase.READY and r.role == role]
    seen = [
        r.prefill_rate
        for r in ready
        if r.prefill_rate and signals.time - since.get(r.name, signals.time) >= FULL_SECONDS
    ]
    if not seen or len(seen) < FULL_SHARE * len(ready):
        return before
    rate, known = max(seen), most(before, signals.time)
    return Full(rate if known == inf else known + FULL_WEIGHT * (rate - known), signals.time)


def most(known: Full | None, time: float) -> float:
    """Tokens per second that a replica does at most, as far as full ones have shown. It fades, so that a replica that has
    become faster is found out, and is none after two FADE_SECONDS."""
    age = inf if known is None else max(0.0, time - known.time)
    return inf if known is None or age > 2 * FADE_SECONDS else known.velocity * exp(age / FADE_SECONDS)

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
from math import exp, log

from steelyard.decide.scale.decision import Learnt, Tick
from steelyard.decide.scale.fits import FORGET_SECONDS
from steelyard.decide.scale.learning import BETA_LEAST, TICK_SECONDS
from steelyard.decide.scale.signals import Phase, Replica, Signals

BURSTINESS = 4.0  # K: 2 where lengths spread like an exponential, and twice that for arrivals in bursts
GROWTH_SECONDS = 20.0  # over which the growth of queues is taken
FULL_SECONDS = 25.0  # with somebody waiting until a rate is a speed: longer than the span of the rate
FULL_WEIGHT = 0.3  # of the newest such speed in the smoothed one
BETA_MOST = 2.5
BETA_UP, BETA_DOWN = 0.2, 0.02  # a tick of 5 s: ten without anybody late take back what one with too many added


def waiting_tokens(signals: Signals, reading: Iterable[Replica]) -> float | None:
    """Uncached prompt tokens that wait inside the replicas that prefill; None where one does not tell."""
    waits = [replica.waiting for replica in reading]
    if None in waits or signals.mean_uncached is None:
        return None
    return sum(w for w in waits if w is not None) * signals.mean_uncached


def with_queues(signals: Signals, ticks: Sequence[Tick], waiting: float | None) -> Signals:
    """Correct the rate by the growth of the queues: engines that are full finish what they can, however much arrives."""
    if signals.uncached_rate is None or waiting is None:
        return signals
    now = signals.time
    known = [tick for tick in ticks if tick.waiting is not None and now - 1.5 * GROWTH_SECONDS <= tick.time < now]
    if not known:
        return signals
    then = next((tick for tick in reversed(known) if tick.time <= now - GROWTH_SECONDS), known[0])
    growth = (waiting - (then.waiting or 0.0)) / (now - then.time)
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


def feedback(beta: float, share: float | None, allowed: float, elapsed: float, *, starting: bool) -> float:
    """Move beta by the `share` of the replicas that are late now, of which `allowed` may be. It does not rise while
    replicas that were asked for start: a late start is not paid for a second time."""
    if share is None:
        return beta
    ticks = min(1.0, elapsed / TICK_SECONDS)
    if share > allowed:
        return beta if starting else max(beta, min(BETA_MOST, beta * (1 + BETA_UP * ticks)))
    return max(BETA_LEAST, beta * (1 - BETA_DOWN * ticks))


def full_since(before: Mapping[str, float], signals: Signals) -> dict[str, float]:
    """Since when somebody has waited in each ready replica, as every tick saw it."""
    return {
        r.name: before.get(r.name, signals.time)
        for r in signals.replicas
        if r.phase is Phase.READY and r.waiting is not None and r.waiting >= 1
    }


def learn(learnt: Learnt, full: Mapping[str, float], signals: Signals, role: str, elapsed: float) -> Learnt:
    """Take in how fast the full replicas of a role are.

    Prompts that share passes each tell of the whole pass as their own time; a fit to that can make a replica a hundred times
    as fast as it is, and then nothing is asked for, whatever waits. This bounds it. The bound fades within minutes, so that
    a replica that has become faster is found out.
    """
    before = learnt.full_velocity
    faded = None if before is None else before * exp(max(0.0, elapsed) / FORGET_SECONDS)
    seen = [
        r.prefill_rate
        for r in signals.replicas
        if r.role == role and r.prefill_rate and signals.time - full.get(r.name, signals.time) >= FULL_SECONDS
    ]
    if not seen:
        return replace(learnt, full_velocity=faded)
    rate = max(seen)
    return replace(learnt, full_velocity=rate if before is None else before + FULL_WEIGHT * (rate - before))

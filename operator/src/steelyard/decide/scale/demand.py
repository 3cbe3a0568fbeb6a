"""What decode needs, in replicas at full use, and what of the signals is unknown.

Demand is read at admission, not at completion: sequences that run or wait, and how fast they become more. KV use, the
queue alone and Little's law are far worse signals; misses of TPOT are none, because admission holds the step time.
"""

from dataclasses import dataclass
from math import ceil, exp, sqrt

from steelyard.decide.scale.capacity import Capacity
from steelyard.decide.scale.signals import Replica, Signals

QUEUE_SECONDS = 0.25  # of arrivals are on their way from hand-off to their first step: not a queue
INFLOW_SPAN_SECONDS = 20.0  # of the net inflow's measurement
INFLOW_DOUBT = 0.5  # standard deviations that a measured inflow is taken to be too high
LASTING = 2.0  # residence times that an inflow lasts: what began ends after one, while arrivals may still be growing
TICK_SECONDS = 5.0
TYPICAL_ANSWER = 200.0  # tokens, where nothing is known
TYPICAL_CONTEXT = 1000.0  # tokens, where nothing is known


@dataclass(frozen=True, slots=True)
class Decode:
    """Decode's need. `now` decides the split of what is ready, `total` the size of the whole."""

    now: float
    total: float
    context: float  # mean KV tokens of a sequence
    held: int  # R(c)
    waits: float  # requests in the queue, beyond those that are merely on their way
    partial: bool  # some of it is unknown: enough to grow on, not to shrink on


def decode_need(signals: Signals, replicas: tuple[Replica, ...], capacity: Capacity, start: float) -> Decode | None:
    """Measure the need of the sequences on `replicas` (ready ones that decode); None where no gauge is known. What is asked
    for now is there in `start` seconds.

    A replica without gauges is taken to run as many as the others do.
    """
    known = [(r.running, r.kv_use) for r in replicas if r.running is not None]
    if replicas and not known:
        return None
    counted = sum(running for running, _ in known)
    running = counted * len(replicas) / len(known) if known else 0.0
    context = _context(signals, known, capacity)
    held = capacity.held(context)
    waits = waiting(signals)
    now = (running + waits) / held
    step = capacity.model.decode_step_seconds(max(1.0, running / max(1, len(replicas))), context)
    total = now + growth(signals, step, start) / held
    if signals.generated_rate is not None:
        total = max(total, signals.generated_rate / capacity.token_rate(held, context))
    partial = len(known) < len(replicas) or None in (signals.decode_queue, signals.generated_rate, signals.request_rate)
    return Decode(now, total, context, held, waits, partial)


def waiting(signals: Signals) -> float:
    """Requests that wait for decode, beyond those that are merely on their way."""
    return max(0.0, (signals.decode_queue or 0.0) - ceil(QUEUE_SECONDS * (signals.request_rate or 0.0)))


def growth(signals: Signals, step: float, start: float) -> float:
    """Sequences by which decode will have grown when a replica that is asked for now is ready.

    Long answers build up slowly: with a residence T (answer · step) of two minutes they grow for as long after any change,
    and a start is a minute behind. The net inflow is taken to fade with `LASTING`·T, and counts only as far as it stands
    out from its own noise: arrivals and ends over the span of its measurement, both Poisson.
    """
    inflow = signals.decode_inflow or 0.0
    noise = sqrt(2 * (signals.request_rate or 0.0) / INFLOW_SPAN_SECONDS)
    fading = LASTING * max(step, (signals.mean_output or TYPICAL_ANSWER) * step)
    ahead = fading * (1 - exp(-(start + TICK_SECONDS) / fading))
    return ahead * max(0.0, inflow - INFLOW_DOUBT * noise)


def _context(signals: Signals, known: list[tuple[float, float | None]], capacity: Capacity) -> float:
    """Mean tokens a sequence holds: what lies in KV over who is running, else what requests are like."""
    pairs = [(running, use) for running, use in known if use is not None]
    sequences = sum(running for running, _ in pairs)
    tokens = sum(use for _, use in pairs) * capacity.model.kv_tokens
    if sequences >= 1 and tokens > 0:
        return tokens / sequences
    if signals.mean_prompt is None:
        return TYPICAL_CONTEXT
    return signals.mean_prompt + (signals.mean_output or 0.0) / 2

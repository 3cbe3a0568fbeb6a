"""What decode needs, in replicas at full use, and what of the signals is unknown.

Demand is read at admission, not at completion: sequences that run or wait, and how fast they become more. KV use, the
queue alone and Little's law are far worse signals; misses of TPOT are none, because admission holds the step time.
"""

from dataclasses import dataclass
from math import ceil

from steelyard.decide.scale.capacity import Capacity
from steelyard.decide.scale.signals import Replica, Signals

QUEUE_SECONDS = 0.25  # of arrivals are on their way from hand-off to their first step: not a queue
INFLOW_SECONDS = 10.0  # of net inflow are provided for
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


def decode_need(signals: Signals, replicas: tuple[Replica, ...], capacity: Capacity) -> Decode | None:
    """Measure the need of the sequences on `replicas` (ready ones that decode); None where no gauge is known.

    A replica without gauges is taken to run as many as the others do.
    """
    known = [(r.running, r.kv_use) for r in replicas if r.running is not None]
    if replicas and not known:
        return None
    counted = sum(running for running, _ in known)
    running = counted * len(replicas) / len(known) if known else 0.0
    context = _context(signals, known, capacity)
    held = capacity.held(context)
    way = ceil(QUEUE_SECONDS * (signals.request_rate or 0.0))
    waits = max(0.0, (signals.decode_queue or 0.0) - way)
    now = (running + waits) / held
    total = now + INFLOW_SECONDS * max(0.0, signals.decode_inflow or 0.0) / held
    if signals.generated_rate is not None:
        total = max(total, signals.generated_rate / capacity.token_rate(held, context))
    partial = len(known) < len(replicas) or None in (signals.decode_queue, signals.generated_rate, signals.request_rate)
    return Decode(now, total, context, held, waits, partial)


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

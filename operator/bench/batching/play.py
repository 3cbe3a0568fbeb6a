"""Plays requests through the engine's scheduler and a model, on a clock of CPU time."""

from __future__ import annotations

import time
from collections.abc import Sequence as Items
from dataclasses import dataclass

from steelyard_engine.backends import Backend
from steelyard_engine.sampling import Sampling
from steelyard_engine.scheduler import Scheduler
from steelyard_engine.steps import Batching, Limits, Sequence

from bench.batching.load import Asked

GREEDY = Sampling(temperature=0.0)
MAX_WAIT = 1.0  # seconds that a dynamic batch waits to fill


@dataclass(frozen=True)
class Answered:
    """One request's figures, in seconds of the clock."""

    ttft: float
    tpot: float  # mean of the tokens after the first
    ended: float


def play(
    backend: Backend, batching: Batching, sequences: int, batch_tokens: int, asked: Items[Asked]
) -> list[Answered]:
    """Answer every request; `backend` is loaded and empty, and empty again afterwards.

    `sequences` and `batch_tokens` are the most that run at once, and the most of a step.
    """
    limits = Limits(sequences, batch_tokens, backend.kv_tokens, backend.slots, batching, MAX_WAIT, prefix_tokens=0)
    scheduler = Scheduler(limits)
    coming = [Sequence(key, one.prompt, one.answer, one.at) for key, one in enumerate(asked)]
    coming.reverse()
    firsts: dict[int, float] = {}
    found: dict[int, Answered] = {}
    now = 0.0
    while coming or scheduler.busy:
        while coming and coming[-1].arrival <= now:
            scheduler.add(coming.pop())
        before = time.process_time()
        step = scheduler.plan(now)
        if step is None:
            now = _next(scheduler.wake_at(now), coming)
            continue
        for operation in step.operations:
            backend.apply(operation)  # type: ignore[arg-type]  # nothing is handed over here: no Restore
        sampled = (
            backend.run(step.chunks, {one.sequence.id: GREEDY for one in step.chunks}, step.kv_use)
            if step.chunks
            else {}
        )
        advanced = scheduler.commit(step, sampled)
        now += time.process_time() - before
        for sequence in advanced:
            first = firsts.setdefault(sequence.id, now)
            if sequence.generated == sequence.max_tokens:
                scheduler.finish(sequence, reuse=False)
                gaps = max(1, sequence.generated - 1)
                found[sequence.id] = Answered(first - sequence.arrival, (now - first) / gaps, now)
    if (last := scheduler.plan(now)) is not None:
        for operation in last.operations:
            backend.apply(operation)  # type: ignore[arg-type]
    return [found[key] for key in range(len(asked))]


def _next(wake: float | None, coming: Items[Sequence]) -> float:
    """The moment of the next arrival, or of a batch that waits no longer."""
    moments = [coming[-1].arrival] if coming else []
    return min(moments + ([wake] if wake is not None else []))

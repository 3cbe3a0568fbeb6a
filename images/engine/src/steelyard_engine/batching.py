"""Batching strategies: which prompts start, and what runs beside what in one step. One small class each.

- chunked: a step is a token of every running answer and then pieces of prompts, within the token budget; a prompt starts as
  soon as the budget has room for a piece of it.
- continuous: a step is whole prompts or, where there are none, a token of every running answer; a prompt starts as soon as
  there is a place, and the answers wait for it.
- static: the same, but prompts start together, once the whole batch before them has ended.
- dynamic: as static; a batch that is not full waits for more until its first request has waited `max_wait`.

Chunked is Sarathi's stall-free batching (Agrawal et al., 2024), continuous is Orca's (Yu et al., 2022) as early vLLM had it.
"""

from collections import deque
from collections.abc import Mapping
from typing import Protocol

from .steps import Batching, Chunk, Limits, Sequence


class Work(Protocol):
    """What a strategy sees of the scheduler, and the two things it may have it do."""

    limits: Limits
    waiting: deque[Sequence]
    running: dict[int, Sequence]  # by id, oldest admission first

    def admit(self, now: float) -> Sequence | None:
        """Start the sequence at the head of the queue, if a place, a slot and KV are there."""

    def piece(self, sequence: Sequence, budget: int) -> Chunk:
        """The next tokens of a sequence's prompt, as many as the budget allows."""

    def decodes(self) -> list[Chunk]:
        """One token of each running sequence that has only one to run."""


class Strategy(Protocol):
    """The interface of all."""

    def chunks(self, work: Work, now: float) -> list[Chunk]:
        """Return what the next step runs, after starting what may start."""

    def wake_at(self, work: Work, now: float) -> float | None:
        """Return when to ask again although nothing happened; None: only an event brings new work."""


class Chunked:
    """Decodes first, one token each; then pieces of prompts, oldest first, then new ones, within the budget."""

    def chunks(self, work: Work, now: float) -> list[Chunk]:
        chunks = work.decodes()
        budget = work.limits.max_batch_tokens - sum(chunk.size for chunk in chunks)
        for sequence in work.running.values():
            if sequence.pending > 1 and budget > 0:
                chunks.append(work.piece(sequence, budget))
                budget -= chunks[-1].size
        while budget > 0 and (admitted := work.admit(now)) is not None:
            chunks.append(work.piece(admitted, budget))
            budget -= chunks[-1].size
        return chunks

    def wake_at(self, work: Work, now: float) -> float | None:
        return None


class Continuous:
    """New sequences join whenever there is place; their prompts run whole, and before anybody's next token."""

    def chunks(self, work: Work, now: float) -> list[Chunk]:
        if self.opens(work, now):
            while work.admit(now) is not None:
                pass
        return _whole_prompts(work) or work.decodes()

    def opens(self, work: Work, now: float) -> bool:
        """Say whether sequences may start now."""
        return True

    def wake_at(self, work: Work, now: float) -> float | None:
        return None


class Static(Continuous):
    """A batch of what waits, once nothing runs; it ends before the next begins."""

    def opens(self, work: Work, now: float) -> bool:
        return not work.running


class Dynamic(Static):
    """As static, but a batch that is not full waits for more, until its first request has waited `max_wait`."""

    def opens(self, work: Work, now: float) -> bool:
        if work.running or not work.waiting:
            return False
        return len(work.waiting) >= work.limits.max_sequences or now >= self._due(work)

    def wake_at(self, work: Work, now: float) -> float | None:
        if work.running or not work.waiting:
            return None
        due = self._due(work)
        return due if due > now else None

    def _due(self, work: Work) -> float:
        return work.waiting[0].arrival + work.limits.max_wait


def _whole_prompts(work: Work) -> list[Chunk]:
    """Whole prompts as far as the budget goes, oldest first; one that is longer runs in a pass of its own."""
    chunks: list[Chunk] = []
    budget = work.limits.max_batch_tokens
    for sequence in work.running.values():
        prefill = sequence.pending > 1 or sequence.computed == 0
        if prefill and (not chunks or sequence.pending <= budget):
            chunks.append(work.piece(sequence, sequence.pending))
            budget -= chunks[-1].size
    return chunks


STRATEGIES: Mapping[Batching, type[Chunked | Continuous]] = {
    "chunked": Chunked,
    "continuous": Continuous,
    "static": Static,
    "dynamic": Dynamic,
}


def strategy(batching: Batching) -> Strategy:
    """The strategy of that name."""
    return STRATEGIES[batching]()

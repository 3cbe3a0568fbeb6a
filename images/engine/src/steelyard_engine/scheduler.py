"""The scheduler: which tokens of which sequences the next step computes. Pure; both backends share it.

A `Sequence` is a prompt and what was generated after it. `computed` of its `tokens` have KV; whatever is beyond must
still be run. The owner calls `plan(now)` for a `Step`, lets a backend execute it, and gives the sampled tokens to
`commit`. A step first carries out its operations (free a slot, share a prefix, restore a transferred state), then runs
its chunks as one batch.

Rules:
- Admission is first come, first served, and nobody overtakes: a sequence starts when a running place, a slot and KV for
  its whole prompt are there, with one spare block for each running sequence so that growth does not preempt at once.
- A finished sequence's KV stays as a reusable prefix until it is evicted (`kv.py`); a *held* one stays until released.
- When KV runs out, the youngest running sequence is preempted: it loses its KV, goes back to the head of the queue and
  is computed again later. The oldest gives way to held sequences only, whose leases end; hence every sequence ends.
- A transferred sequence starts with all of its prompt but the last token computed, and runs that one as its first decode.

Which prompts start and what runs beside what is a strategy's: `batching.py`.
"""

from collections import deque
from collections.abc import Mapping

from .batching import strategy
from .kv import BLOCK, KvPool, blocks_for, extend_keys
from .steps import Chunk, Free, Limits, Operation, Restore, Sequence, Share, Step


class Scheduler:
    """Queue, running sequences, slots and KV of one engine. Time is an argument; nothing here blocks or computes."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._strategy = strategy(limits.batching)
        self.pool = KvPool(limits.kv_tokens, limits.prefix_tokens)
        self.waiting: deque[Sequence] = deque()
        self.running: dict[int, Sequence] = {}  # by id, oldest admission first
        self.held: dict[int, Sequence] = {}
        self.preemptions = 0
        self.cache_queries = 0  # prompt tokens looked up in the prefix cache
        self.cache_hits = 0
        self._slot_of: dict[int, int] = {}  # owner (sequence id) -> slot
        self._free_slots = list(range(limits.slots - 1, -1, -1))
        self._operations: list[Operation] = []

    @property
    def busy(self) -> bool:
        """Say whether any sequence waits or runs."""
        return bool(self.waiting or self.running)

    @property
    def kv_use(self) -> float:
        """Share of the KV capacity that running and held sequences need, 0 to 1."""
        return self.pool.used / self.pool.total

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence; refuse (ValueError) one that could never fit, since it would block the queue for ever."""
        if blocks_for(len(sequence.prompt) + sequence.max_tokens) > self.pool.total:
            raise ValueError(f"prompt and answer need more than the KV capacity of {self.limits.kv_tokens} tokens")
        self.waiting.append(sequence)

    def plan(self, now: float) -> Step | None:
        """Return the next step, or None where nothing is to be done until `wake_at`."""
        chunks = self._strategy.chunks(self, now)
        operations, self._operations = tuple(self._operations), []
        return Step(operations, tuple(chunks), self.kv_use) if chunks or operations else None

    def wake_at(self, now: float) -> float | None:
        """Return when a waiting batch must start although it is not full; None: only an event brings new work."""
        return self._strategy.wake_at(self, now)

    def commit(self, step: Step, sampled: Mapping[int, int]) -> list[Sequence]:
        """Record that `step` ran and gave `sampled` (sequence id → token); return the sequences that got a token.

        Sequences that ended while the step ran are skipped.
        """
        advanced = []
        for chunk in step.chunks:
            sequence = chunk.sequence
            if sequence.id not in self.running:
                continue
            sequence.computed = chunk.end
            extend_keys(sequence.keys, sequence.tokens)
            while sequence.registered < chunk.end // BLOCK:
                self.pool.register(sequence.id, sequence.registered, sequence.keys[sequence.registered])
                sequence.registered += 1
            if chunk.sample:
                sequence.tokens.append(sampled[sequence.id])
                advanced.append(sequence)
        return advanced

    def restore_failed(self, sequence: Sequence) -> None:
        """Make a sequence whose state could not be restored compute its prompt here, from the head of the queue."""
        self._requeue(sequence)

    def finish(self, sequence: Sequence, hold: bool = False, reuse: bool = True) -> None:
        """End a sequence in whatever state it is; `hold` its KV until it is released, or keep it for `reuse`."""
        if self.running.pop(sequence.id, None) is not None:
            if hold:
                self.held[sequence.id] = sequence
            elif reuse:
                self._soften(sequence)
            else:
                self.pool.release(sequence.id)
                self._forget([sequence.id])
        elif sequence in self.waiting:
            self.waiting.remove(sequence)

    def release(self, sequence: Sequence) -> None:
        """Turn a held sequence into a reusable prefix."""
        if self.held.pop(sequence.id, None) is not None:
            self._soften(sequence)

    def admit(self, now: float) -> Sequence | None:
        """Start the sequence at the head of the queue, if a place, a slot and KV are there."""
        if not self.waiting or len(self.running) == self.limits.max_sequences:
            return None
        sequence = self.waiting[0]
        blocks = blocks_for(len(sequence.tokens))
        restored = sequence.transferred
        usable = 0 if restored else (len(sequence.tokens) - 1) // BLOCK
        keys = sequence.keys[:usable]
        shared, source = self.pool.match(keys)
        if not self.pool.fits(source, shared, blocks, spare=len(self.running)):
            return None
        if not self._free_slots:
            soft = self.pool.soft_owners
            if not soft:
                return None
            victim = next((owner for owner in soft if owner != source), soft[0])
            self.pool.release(victim)
            self._forget([victim])
            shared, source = self.pool.match(keys)
        self.waiting.popleft()
        sequence.slot = self._slot_of[sequence.id] = self._free_slots.pop()
        if source is not None:
            self._operations.append(Share(self._slot_of[source], sequence.slot, shared * BLOCK))
        self._forget(self.pool.admit(sequence.id, source, shared, blocks))
        sequence.computed = shared * BLOCK
        if not sequence.generated:
            sequence.cached = sequence.computed
        if sequence.started is None:
            sequence.started = now
            if not restored:
                self.cache_queries += len(sequence.prompt)
                self.cache_hits += sequence.cached
        if restored:
            self._operations.append(Restore(sequence))
            sequence.computed = restored
        self.running[sequence.id] = sequence
        return sequence

    def decodes(self) -> list[Chunk]:
        """One token for each running sequence that has only one to run, oldest first, growing its KV or preempting."""
        chunks: list[Chunk] = []
        for sequence in list(self.running.values()):
            if len(chunks) == self.limits.max_batch_tokens:
                break
            if sequence.pending == 1 and sequence.id in self.running and self._grow(sequence):
                chunks.append(Chunk(sequence, sequence.computed, sequence.computed + 1, True))
        return chunks

    def _grow(self, sequence: Sequence) -> bool:
        """Get KV for all tokens of a sequence, from younger ones if need be; False where it had to give way itself."""
        need = blocks_for(len(sequence.tokens))
        while self.pool.available < need - len(self.pool.blocks(sequence.id)):
            victim = next(reversed(self.running.values()))
            self.preemptions += 1
            self._requeue(victim)
            if victim is sequence:
                return False
        self._forget(self.pool.grow(sequence.id, need))
        return True

    def _requeue(self, sequence: Sequence) -> None:
        """Take KV and slot from a running sequence and put it at the head of the queue, to be computed anew."""
        del self.running[sequence.id]
        self.pool.release(sequence.id)
        self._forget([sequence.id])
        sequence.transferred = 0
        sequence.computed = 0
        sequence.registered = 0
        self.waiting.appendleft(sequence)

    def _soften(self, sequence: Sequence) -> None:
        self._forget(self.pool.soften(sequence.id, sequence.computed))

    def _forget(self, owners: list[int]) -> None:
        """Give back the slots of owners that hold no KV any more."""
        for owner in owners:
            slot = self._slot_of.pop(owner)
            self._operations.append(Free(slot))
            self._free_slots.append(slot)

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
- Guesses at an answer's next tokens (`guesses.py`) run behind its last one where the step's budget and free KV have room for
  them: they never delay another sequence's token, and never preempt.
- With a window, a text that is longer than it forgets what lies between its sink and its latest tokens, whenever its place in
  the cache is full. It shares no prefix. One that is preempted does all of it again, so that its answer stays the same.

Which prompts start and what runs beside what is a strategy's: `batching.py`.
"""

from collections import deque
from collections.abc import Mapping
from collections.abc import Sequence as Tokens
from dataclasses import replace
from types import MappingProxyType

from .batching import strategy
from .kv import BLOCK, KvPool, blocks_for
from .steps import Chunk, Free, Limits, Operation, Restore, Sequence, Share, Shift, Step

NOTHING: Mapping[int, Tokens[int]] = MappingProxyType({})


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
        self.forgotten = 0  # tokens whose KV was dropped to keep to the window
        self._slot_of: dict[int, int] = {}  # owner (sequence id) -> slot
        self._free_slots = list(range(limits.slots - 1, -1, -1))
        self._operations: list[Operation] = []
        self._guesses = NOTHING

    @property
    def busy(self) -> bool:
        """Say whether any sequence waits or runs."""
        return bool(self.waiting or self.running)

    @property
    def kv_use(self) -> float:
        """Share of the KV capacity that running and held sequences need, 0 to 1."""
        return self.pool.used / self.pool.total

    def add(self, sequence: Sequence, forgotten: int = 0) -> None:
        """Queue a sequence; refuse (ValueError) one that could never fit, since it would block the queue for ever.

        A transferred state lacks the `forgotten` tokens behind the window's sink.
        """
        window = self.limits.window
        if window is not None and len(sequence.prompt) + sequence.max_tokens > window.size:
            sequence.window = window
            sequence.forget(forgotten)
        sequence.extend_keys()
        if self._blocks(sequence, len(sequence.prompt) + sequence.max_tokens) > self.pool.total:
            raise ValueError(f"prompt and answer need more than the KV capacity of {self.limits.kv_tokens} tokens")
        self.waiting.append(sequence)

    @property
    def answering(self) -> list[Sequence]:
        """Running sequences whose next step samples a token, oldest first: those that guesses are of use for."""
        return [sequence for sequence in self.running.values() if sequence.pending == 1 and sequence.computed]

    def plan(self, now: float, guesses: Mapping[int, Tokens[int]] = NOTHING) -> Step | None:
        """Return the next step, or None where nothing is to be done until `wake_at`; `guesses` by id of the sequence."""
        self._guesses = guesses
        chunks = self._strategy.chunks(self, now)
        operations, self._operations = tuple(self._operations), []
        return Step(operations, tuple(chunks), self.kv_use) if chunks or operations else None

    def wake_at(self, now: float) -> float | None:
        """Return when a waiting batch must start although it is not full; None: only an event brings new work."""
        return self._strategy.wake_at(self, now)

    def commit(self, step: Step, sampled: Mapping[int, Tokens[int]]) -> list[Sequence]:
        """Record that `step` ran and gave `sampled` (sequence id → its tokens, guesses that were right and one more); return
        the sequences that got any.

        Sequences that ended while the step ran are skipped.
        """
        advanced = []
        for chunk in step.chunks:
            sequence = chunk.sequence
            if sequence.id not in self.running:
                continue
            sequence.computed = chunk.end
            if chunk.sample:
                sequence.tokens.extend(sampled[sequence.id])
                sequence.computed += len(sampled[sequence.id]) - 1
                advanced.append(sequence)
            sequence.extend_keys()
            while sequence.window is None and sequence.registered < sequence.computed // BLOCK:
                self.pool.register(sequence.id, sequence.registered, sequence.keys[sequence.registered])
                sequence.registered += 1
        return advanced

    def cut(self, sequence: Sequence, tokens: int) -> None:
        """Take back the last `tokens` tokens of a sequence that is about to end before them."""
        if tokens:
            del sequence.tokens[-tokens:]
            sequence.computed = min(sequence.computed, len(sequence.tokens))

    def restore_failed(self, sequence: Sequence) -> None:
        """Make a sequence whose state could not be restored compute its prompt here, from the head of the queue."""
        self._requeue(sequence)

    def finish(self, sequence: Sequence, hold: bool = False, reuse: bool = True) -> None:
        """End a sequence in whatever state it is; `hold` its KV until it is released, or keep it for `reuse`."""
        if self.running.pop(sequence.id, None) is not None:
            if hold:
                self.held[sequence.id] = sequence
            elif reuse and sequence.window is None:
                self._soften(sequence)
            else:
                self.pool.release(sequence.id)
                self._forget([sequence.id])
        elif sequence in self.waiting:
            self.waiting.remove(sequence)

    def release(self, sequence: Sequence) -> None:
        """Turn a held sequence into a reusable prefix."""
        if self.held.pop(sequence.id, None) is None:
            return
        if sequence.window is None:
            self._soften(sequence)
        else:
            self.pool.release(sequence.id)
            self._forget([sequence.id])

    def admit(self, now: float) -> Sequence | None:
        """Start the sequence at the head of the queue, if a place, a slot and KV are there."""
        if not self.waiting or len(self.running) == self.limits.max_sequences:
            return None
        sequence = self.waiting[0]
        blocks = self._blocks(sequence, len(sequence.tokens))
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
            sequence.computed = restored - len(sequence.forgotten)
        self.running[sequence.id] = sequence
        return sequence

    def decodes(self) -> list[Chunk]:
        """One token for each running sequence that has only one to run, oldest first, growing its KV or preempting."""
        chunks: list[Chunk] = []
        for sequence in list(self.running.values()):
            if len(chunks) == self.limits.max_batch_tokens:
                break
            if sequence.pending == 1 and sequence.id in self.running:
                self._make_room(sequence)
                if self._grow(sequence):
                    chunks.append(Chunk(sequence, sequence.computed, sequence.computed + 1, True))
        return self._guessed(chunks) if self._guesses else chunks

    def piece(self, sequence: Sequence, budget: int) -> Chunk:
        """The next tokens of a sequence, as many as the budget and its window allow; the last of all is sampled after."""
        self._make_room(sequence)
        end = min(sequence.computed + budget, len(sequence.tokens))
        if sequence.window is not None:
            end = min(end, sequence.window.size)
        return Chunk(sequence, sequence.computed, end, end == len(sequence.tokens))

    def _make_room(self, sequence: Sequence) -> None:
        """Where a sequence's window is full, let it forget."""
        window = sequence.window
        if window is None or sequence.computed < window.size:
            return
        sequence.forget(window.stride)
        sequence.computed -= window.stride
        self.forgotten += window.stride
        self._operations.append(Shift(sequence.slot, window.sink, window.sink + window.stride))

    def _blocks(self, sequence: Sequence, tokens: int) -> int:
        """Return the blocks that so many tokens of a sequence take, of which its window keeps only some."""
        return blocks_for(tokens if sequence.window is None else min(tokens, sequence.window.size))

    def _guessed(self, chunks: list[Chunk]) -> list[Chunk]:
        """Add guesses as far as the budget of the step, the limit of the answer and KV that nobody needs have room for."""
        room = self.limits.max_batch_tokens - len(chunks)
        found = []
        for chunk in chunks:
            sequence = chunk.sequence
            rest = sequence.max_tokens - sequence.generated - 1
            if sequence.window is not None:
                rest = min(rest, sequence.window.size - chunk.end)
            guesses = tuple(self._guesses.get(sequence.id, ()))[: max(0, min(room, rest))]
            held = len(self.pool.blocks(sequence.id))
            free = self.pool.available - len(self.running)
            if blocks_for(len(sequence.tokens) + len(guesses)) - held > max(0, free):
                guesses = guesses[: held * BLOCK - len(sequence.tokens)]
            self._forget(self.pool.grow(sequence.id, blocks_for(len(sequence.tokens) + len(guesses))))
            room -= len(guesses)
            found.append(replace(chunk, guesses=guesses))
        return found

    def _grow(self, sequence: Sequence) -> bool:
        """Get KV for all tokens of a sequence, from younger ones if need be; False where it had to give way itself."""
        need = self._blocks(sequence, len(sequence.tokens))
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
        sequence.remember()
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

"""Who decodes where, and when: the queue in front of the decode replicas of one kv-group.

A decode step grows with its batch, so a replica taken past the batch that fits the per-token objective fails everybody on
it: a cliff. Requests therefore wait here, and are admitted to the ready replica with the fewest KV tokens among those
that run fewer than `slots` sequences. Those whose first-token objective has already passed come last, with the credit of
`backlog.py`, counted in sequences.

Laws: never to a replica that is not ready; never past `slots` (a retry aside); nobody waits while a ready replica has a
free slot. Time is an argument; O(log n) a step in requests, linear in replicas. Standard library only.
"""

from typing import NamedTuple

from steelyard.decide.queue.backlog import Waiting
from steelyard.decide.queue.role import Dispatch, RoleQueue


class Sequence(NamedTuple):
    """A prefilled request: its context in tokens, and when it first arrived (seconds)."""

    key: int
    tokens: float
    arrived: float


class DecodeQueue(RoleQueue[Sequence]):
    """The state machine. Callers report events and then call `step`."""

    slots: int

    def __init__(self, *, slots: int, ttft_objective: float | None = None) -> None:
        """`slots` are the sequences that one replica may hold for us; `ttft_objective` is in seconds, None if absent."""
        super().__init__(slots)
        self.ttft_objective = ttft_objective

    @property
    def outstanding_tokens(self) -> float:
        """Context tokens of those that run on replicas."""
        return sum(replica.work for replica in self._replicas.values())

    def backed_up(self) -> bool:
        """Whether so many wait that more prefills would only hold KV which expires before its turn: more than half the
        slots of the ready replicas, and at least one."""
        waiting = len(self.in_line)
        return waiting > 0 and waiting >= self.slots * len(self._ready) // 2

    def push(self, sequence: Sequence) -> None:
        """A prefilled request arrives. Raises ValueError if its key is already known."""
        self._learn_of(sequence)
        self._enqueue(sequence)

    def offer(self, sequence: Sequence) -> str | None:
        """A prefilled request arrives, and is placed at once where nobody waits and a slot is free: return the replica.
        None: it is in line now. Raises ValueError if its key is already known."""
        self._learn_of(sequence)
        replica = None if self.in_line else self._least()
        if replica is None:
            self._enqueue(sequence)
            return None
        self._line.credit = 0.0  # as for every dispatch while nobody is late
        self._place(sequence.key, replica, sequence.tokens)
        return replica.name

    def drop(self, key: int) -> None:
        """The request is over for this queue, waiting or running."""
        if self._known.pop(key, None) is not None and self._leave(key) is None:
            self._line.remove(key)

    def retry(self, key: int) -> str | None:
        """A running request failed where it was: send it to another ready replica at once, to the same one if it is the
        only one ready, or back in line (None) if none is."""
        sequence = self._known[key]
        replica = self._elsewhere(self._leave(key))
        if replica is None:
            self._enqueue(sequence)
            return None
        self._place(key, replica, sequence.tokens)
        return replica.name

    def step(self, now: float) -> list[Dispatch]:
        """Decide everything that can be decided at `now`."""
        sent: list[Dispatch] = []
        while self.in_line:
            replica = self._least()
            if replica is None:
                break
            sequence = self._known[self._next(now)]
            self._place(sequence.key, replica, sequence.tokens)
            sent.append(Dispatch(sequence.key, replica.name))
        return sent

    def _next(self, now: float) -> int:
        while True:
            late, first = self._line.first_late(), self._line.first()
            if late is not None and (first is None or self._line.credit >= late.size):
                return self._line.take_late(on_credit=first is not None).key
            if first is None:
                raise AssertionError("the line is not empty, yet nobody is in it")
            if self.ttft_objective is None or now - first.arrived <= self.ttft_objective:
                return self._line.take().key
            self._line.demote()

    def _enqueue(self, sequence: Sequence) -> None:
        self._line.add(Waiting(sequence.key, sequence.arrived, 1.0, sequence.tokens, sequence.arrived))

"""Who decodes where, and when: the queue in front of the decode replicas of one kv-group.

A decode step grows with its batch, so a replica taken past the batch that fits the per-token objective fails everybody on
it: a cliff. Requests therefore wait here, and are admitted to the ready replica with the fewest KV tokens among those
that run fewer than `slots` sequences. Those whose first-token objective has already passed come last, with the credit of
`backlog.py`, counted in sequences.

Laws: never to a replica that is not ready; never past `slots` (a retry aside); nobody waits while a ready replica has a
free slot. Time is an argument; O(log n) a step in requests, linear in replicas. Standard library only.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from steelyard.decide.queue.backlog import Backlog, Waiting
from steelyard.decide.queue.dispatch import Dispatch


@dataclass(frozen=True, slots=True)
class Sequence:
    """A prefilled request: its context in tokens, and when it first arrived (seconds)."""

    key: int
    tokens: float
    arrived: float


@dataclass(slots=True)
class _Replica:
    name: str
    ready: bool = True
    turn: int = 0  # serial of the last dispatch: equals take turns
    kv_tokens: float = 0.0
    running: dict[int, float] = field(default_factory=dict)  # key -> tokens


class DecodeQueue:
    """The state machine. Callers report events and then call `step`."""

    def __init__(self, *, slots: int, ttft_objective: float | None = None) -> None:
        """`slots` are the sequences that one replica may hold for us; `ttft_objective` is in seconds, None if absent."""
        self.slots = slots
        self.ttft_objective = ttft_objective
        self._line = Backlog()
        self._sequences: dict[int, Sequence] = {}
        self._at: dict[int, _Replica] = {}
        self._replicas: dict[str, _Replica] = {}
        self._turn = 0
        self._ready = 0  # replicas that are ready

    def __len__(self) -> int:
        """How many wait here."""
        return len(self._line)

    @property
    def queued_tokens(self) -> float:
        """Context tokens of those that wait here."""
        return self._line.tokens

    @property
    def outstanding_tokens(self) -> float:
        """Context tokens of those that run on replicas."""
        return sum(replica.kv_tokens for replica in self._replicas.values())

    def backed_up(self) -> bool:
        """Whether so many wait that more prefills would only hold KV which expires before its turn: more than half the
        slots of the ready replicas, and at least one."""
        return len(self._line) >= max(1, self.slots * self._ready // 2)

    def waiting(self) -> list[int]:
        """Keys of those that wait here, in order of entry."""
        return self._line.keys()

    def any_ready(self) -> bool:
        """Whether some replica can be sent work at all."""
        return any(replica.ready for replica in self._replicas.values())

    def empty(self) -> bool:
        """Whether there is neither a request nor a replica left."""
        return not self._sequences and not self._replicas

    def running_on(self, name: str) -> int:
        """How many sequences run on a replica, ready or not."""
        replica = self._replicas.get(name)
        return len(replica.running) if replica is not None else 0

    def retiring(self) -> bool:
        """Whether sequences run on a replica that is not ready any more."""
        return any(not replica.ready for replica in self._replicas.values())

    def set_ready(self, names: Iterable[str]) -> None:
        """Tell which replicas are ready now. Others get no new work; what runs there is still accounted for."""
        ready = set(names)
        self._ready = len(ready)
        for name in ready - self._replicas.keys():
            self._replicas[name] = _Replica(name)
        for name, replica in list(self._replicas.items()):
            replica.ready = name in ready
            if not replica.ready and not replica.running:
                del self._replicas[name]

    def push(self, sequence: Sequence) -> None:
        """A prefilled request arrives. Raises ValueError if its key is already known."""
        if sequence.key in self._sequences:
            raise ValueError(f"request {sequence.key} is already known")
        self._sequences[sequence.key] = sequence
        self._enqueue(sequence)

    def drop(self, key: int) -> None:
        """The request is over for this queue, waiting or running."""
        if self._sequences.pop(key, None) is None:
            return
        self._line.remove(key)
        self._leave(key)

    def retry(self, key: int) -> str | None:
        """A running request failed where it was: send it to another ready replica at once, to the same one if it is the
        only one ready, or back in line (None) if none is."""
        sequence, failed = self._sequences[key], self._at.get(key)
        self._leave(key)
        ready = [replica for replica in self._replicas.values() if replica.ready]
        others = [replica for replica in ready if replica is not failed]
        if not ready:
            self._enqueue(sequence)
            return None
        replica = min(others or ready, key=lambda r: (r.kv_tokens, len(r.running), r.turn, r.name))
        self._send(sequence, replica)
        return replica.name

    def step(self, now: float) -> list[Dispatch]:
        """Decide everything that can be decided at `now`."""
        sent: list[Dispatch] = []
        while self._line:
            replica = self._least()
            if replica is None:
                break
            sequence = self._sequences[self._next(now)]
            self._send(sequence, replica)
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

    def _least(self) -> _Replica | None:
        free = (r for r in self._replicas.values() if r.ready and len(r.running) < self.slots)
        return min(free, key=lambda r: (r.kv_tokens, len(r.running), r.turn, r.name), default=None)

    def _enqueue(self, sequence: Sequence) -> None:
        self._line.add(Waiting(sequence.key, sequence.arrived, 1.0, sequence.tokens, sequence.arrived))

    def _send(self, sequence: Sequence, replica: _Replica) -> None:
        replica.running[sequence.key] = sequence.tokens
        replica.kv_tokens += sequence.tokens
        self._at[sequence.key] = replica
        self._turn += 1
        replica.turn = self._turn

    def _leave(self, key: int) -> None:
        replica = self._at.pop(key, None)
        if replica is None:
            return
        tokens = replica.running.pop(key)
        replica.kv_tokens = replica.kv_tokens - tokens if replica.running else 0.0
        if not replica.ready and not replica.running:
            self._replicas.pop(replica.name, None)

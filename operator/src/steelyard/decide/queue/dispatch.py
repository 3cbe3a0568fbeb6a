"""Who goes to which prefill replica, and when: the queue in front of prefill (and of aggregated replicas).

Late binding: requests wait here, and go to a replica only when it has less than `theta` of work outstanding, so that an
order and the truth about each replica can still be used. Each decision, in words:

    while somebody waits and some ready replica has a free slot:
        r = the ready replica with the least outstanding work (seconds)
        somebody late, enough credit, r below theta         -> the first late one goes to r
        nobody on time                                      -> the first late one goes to r if r is nearly idle, else stop
        r busy with theta of work or more                   -> stop
        time waited + time to finish r's work and its own > TTFT objective - hand-off -> it is late from now on
        otherwise                                           -> it goes to r, or to the replica that holds its prefix if
                                                               that one has room too

Work is measured in seconds of prefill by the caller's estimate; with `theta` 0 every replica has one request at a time.
Laws: never to a replica that is not ready; no idle ready replica while somebody waits; the late list drains when idle.
Time is an argument. O(log n) a step in requests, linear in replicas. Standard library only.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from steelyard.decide.queue.backlog import Backlog, Waiting

NEARLY_IDLE = 0.25  # share of theta below which late work may follow when nobody is on time


class Order(StrEnum):
    """Who goes first among those that can still meet their objective."""

    SHORTEST_FIRST = "shortestFirst"
    FCFS = "fcfs"


@dataclass(frozen=True, slots=True)
class Job:
    """A request that needs prefill.

    `tokens` are prompt tokens to compute on the replica that holds its prefix (`affine`), `full_tokens` anywhere else.
    `arrived` is in seconds on the clock that every call here uses.
    """

    key: int
    tokens: float
    full_tokens: float
    arrived: float
    affine: str | None = None


@dataclass(frozen=True, slots=True)
class Dispatch:
    """The decision that request `key` goes to `replica` now."""

    key: int
    replica: str


@dataclass(slots=True)
class _Replica:
    name: str
    ready: bool = True
    turn: int = 0  # serial of the last dispatch: equals take turns
    work: float = 0.0  # seconds of dispatched, unfinished prefill
    prefilling: dict[int, float] = field(default_factory=dict)  # key -> seconds
    sequences: set[int] = field(default_factory=set)  # keys that hold a slot
    since: float = 0.0  # when its first unfinished work was started, as far as we know

    def left(self, now: float) -> float:
        """Seconds until the outstanding work is done, by estimate."""
        return max(0.0, self.work - (now - self.since)) if self.prefilling else 0.0


class PrefillQueue:
    """The state machine. Callers report events and then call `step`, which returns what to send where."""

    def __init__(
        self,
        seconds: Callable[[float], float],
        *,
        order: Order = Order.SHORTEST_FIRST,
        ttft_budget: float | None = None,
        theta: float = 0.0,
        slots: int | None = None,
    ) -> None:
        """`seconds(n)` estimates one prefill of n tokens; `ttft_budget` is the objective less the hand-off (None: no
        objective, nobody is late); `slots` bounds the sequences on one replica (aggregated serving)."""
        self.seconds = seconds
        self.order = order
        self.ttft_budget = ttft_budget
        self.theta = theta
        self.slots = slots
        self._line = Backlog()
        self._jobs: dict[int, Job] = {}  # waiting or dispatched
        self._at: dict[int, _Replica] = {}  # where a dispatched request is
        self._replicas: dict[str, _Replica] = {}
        self._turn = 0

    def __len__(self) -> int:
        """How many wait here."""
        return len(self._line)

    @property
    def queued_tokens(self) -> float:
        """Tokens of those that wait here."""
        return self._line.tokens

    @property
    def outstanding_tokens(self) -> float:
        """Tokens dispatched to replicas and not yet prefilled."""
        return sum(self._jobs[key].tokens for replica in self._replicas.values() for key in replica.prefilling)

    @property
    def late_count(self) -> int:
        """How many wait in the late list."""
        return self._line.late_count

    def waiting(self) -> list[int]:
        """Keys of those that wait here, in order of entry."""
        return self._line.keys()

    def late_seconds(self) -> float:
        """Seconds that each ready replica would need for its share of the late list."""
        ready = sum(1 for replica in self._replicas.values() if replica.ready)
        return self._line.late_size / max(1, ready)

    def any_ready(self) -> bool:
        """Whether some replica can be sent work at all."""
        return any(replica.ready for replica in self._replicas.values())

    def set_ready(self, names: Iterable[str]) -> None:
        """Tell which replicas are ready now. Others get no new work; what runs there is still accounted for."""
        ready = set(names)
        for name in ready - self._replicas.keys():
            self._replicas[name] = _Replica(name)
        for name, replica in list(self._replicas.items()):
            replica.ready = name in ready
            if not replica.ready and not replica.sequences:
                del self._replicas[name]

    def push(self, job: Job) -> None:
        """A request arrives. Raises ValueError if its key is already known."""
        if job.key in self._jobs:
            raise ValueError(f"request {job.key} is already known")
        self._jobs[job.key] = job
        self._enqueue(job)

    def prefilled(self, key: int, now: float) -> None:
        """The replica finished the prefill of `key`; the slot stays taken until `drop`. Harmless if told twice."""
        replica = self._at.get(key)
        if replica is None:
            return
        seconds = replica.prefilling.pop(key, None)
        if seconds is None:
            return
        replica.work = max(0.0, replica.work - seconds) if replica.prefilling else 0.0
        replica.since = now

    def alone(self, key: int) -> bool:
        """Whether a dispatched request is the only one its replica prefills now."""
        replica = self._at.get(key)
        return replica is not None and len(replica.prefilling) == 1 and key in replica.prefilling

    def beside(self, key: int) -> set[int]:
        """Return the requests that are prefilled on the same replica as `key`, itself included."""
        replica = self._at.get(key)
        return set(replica.prefilling) if replica is not None else set()

    def drop(self, key: int, now: float) -> None:
        """The request is over for this queue: done, failed, or its client left, waiting or dispatched."""
        if self._jobs.get(key) is None:
            return
        self._line.remove(key)
        self._leave(key, now)
        del self._jobs[key]

    def retry(self, key: int, now: float) -> str | None:
        """A dispatched request failed where it was: send it to another ready replica at once (it has had its turn), to
        the same one if it is the only one ready, or back in line (None) if none is."""
        job, failed = self._jobs[key], self._at.get(key)
        self._leave(key, now)
        ready = [replica for replica in self._replicas.values() if replica.ready]
        others = [replica for replica in ready if replica is not failed]
        if not ready:
            self._enqueue(job)
            return None
        replica = min(others or ready, key=lambda r: (r.work, len(r.sequences), r.turn, r.name))
        self._send(job, replica, now)
        return replica.name

    def step(self, now: float) -> list[Dispatch]:
        """Decide everything that can be decided at `now`."""
        sent: list[Dispatch] = []
        while self._line:
            replica = self._least()
            if replica is None:
                break
            key = self._next(replica, now)
            if key is None:
                break
            job = self._jobs[key]
            replica = self._preferred(job, replica)
            self._send(job, replica, now)
            sent.append(Dispatch(key, replica.name))
        return sent

    def _next(self, replica: _Replica, now: float) -> int | None:
        """Choose who goes to the least-loaded replica, or nobody."""
        while True:
            late, first = self._line.first_late(), self._line.first()
            if late is not None and first is not None and self._line.credit >= late.size and self._room(replica):
                return self._line.take_late(on_credit=True).key
            if first is None:
                nearly_idle = not replica.prefilling or replica.work < NEARLY_IDLE * self.theta
                return self._line.take_late(on_credit=False).key if late is not None and nearly_idle else None
            if not self._room(replica):
                return None
            if not self._late(self._jobs[first.key], replica, now):
                return self._line.take().key
            self._line.demote()

    def _late(self, job: Job, replica: _Replica, now: float) -> bool:
        if self.ttft_budget is None:
            return False
        chosen = self._preferred(job, replica)
        return now - job.arrived + chosen.left(now) + self._seconds_on(job, chosen) > self.ttft_budget

    def _seconds_on(self, job: Job, replica: _Replica) -> float:
        return self.seconds(job.tokens if replica.name == job.affine else job.full_tokens)

    def _room(self, replica: _Replica) -> bool:
        return not replica.prefilling or replica.work < self.theta

    def _free(self, replica: _Replica) -> bool:
        return replica.ready and (self.slots is None or len(replica.sequences) < self.slots)

    def _least(self) -> _Replica | None:
        free = (replica for replica in self._replicas.values() if self._free(replica))
        return min(free, key=lambda r: (r.work, len(r.sequences), r.turn, r.name), default=None)

    def _preferred(self, job: Job, least: _Replica) -> _Replica:
        affine = self._replicas.get(job.affine) if job.affine is not None else None
        return affine if affine is not None and self._free(affine) and self._room(affine) else least

    def _enqueue(self, job: Job) -> None:
        rank = job.tokens if self.order is Order.SHORTEST_FIRST else job.arrived
        self._line.add(Waiting(job.key, rank, self.seconds(job.tokens), job.tokens, job.arrived))

    def _send(self, job: Job, replica: _Replica, now: float) -> None:
        seconds = self._seconds_on(job, replica)
        if not replica.prefilling:
            replica.since = now
        replica.prefilling[job.key] = seconds
        replica.work += seconds
        replica.sequences.add(job.key)
        self._at[job.key] = replica
        self._turn += 1
        replica.turn = self._turn

    def _leave(self, key: int, now: float) -> None:
        self.prefilled(key, now)
        replica = self._at.pop(key, None)
        if replica is None:
            return
        replica.sequences.discard(key)
        if not replica.ready and not replica.sequences:
            self._replicas.pop(replica.name, None)

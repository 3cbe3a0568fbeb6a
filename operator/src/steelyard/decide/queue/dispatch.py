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

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from steelyard.decide.queue.backlog import Waiting
from steelyard.decide.queue.role import Dispatch, Replica, RoleQueue

NEARLY_IDLE = 0.25  # share of theta below which late work may follow when nobody is on time


class Order(StrEnum):
    """Who goes first among those that can still meet their objective."""

    SHORTEST_FIRST = "shortestFirst"
    FCFS = "fcfs"


class Job(NamedTuple):
    """A request that needs prefill.

    `tokens` are prompt tokens to compute on the replica that holds its prefix (`affine`), `full_tokens` anywhere else.
    `arrived` is in seconds on the clock that every call here uses.
    """

    key: int
    tokens: float
    full_tokens: float
    arrived: float
    affine: str | None = None


class PrefillQueue(RoleQueue[Job]):
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
        super().__init__(slots)
        self.seconds = seconds
        self.order = order
        self.ttft_budget = ttft_budget
        self.theta = theta

    @property
    def outstanding_tokens(self) -> float:
        """Tokens dispatched to replicas and not yet prefilled."""
        return sum(self._known[key].tokens for replica in self._replicas.values() for key in replica.doing)

    def outstanding_on(self, name: str) -> float:
        """The same of one replica."""
        replica = self._replicas.get(name)
        return sum(self._known[key].tokens for key in replica.doing) if replica is not None else 0.0

    @property
    def late_count(self) -> int:
        """How many wait in the late list."""
        return self._line.late_count

    def late_seconds(self) -> float:
        """Seconds that each ready replica would need for its share of the late list."""
        return self._line.late_size / max(1, len(self._ready))

    def push(self, job: Job) -> None:
        """A request arrives. Raises ValueError if its key is already known."""
        self._learn_of(job)
        self._enqueue(job)

    def offer(self, job: Job, now: float) -> str | None:
        """A request arrives, and is placed at once where `push` and `step` would place it without anybody waiting: return
        the replica. None: it is in line now. Raises ValueError if its key is already known."""
        self._learn_of(job)
        least = None if self.in_line else self._least()
        if least is not None and self._room(least):
            chosen = self._preferred(job, least)
            seconds = self._seconds_on(job, chosen)
            if not self._late(job, chosen, seconds, now):
                self._line.credit = 0.0  # as for every dispatch while nobody is late
                self._send(job, chosen, seconds, now)
                return chosen.name
        self._enqueue(job)
        return None

    def prefilled(self, key: int, now: float) -> None:
        """The replica finished the prefill of `key`; the slot stays taken until `drop`. Harmless if told twice."""
        replica = self._at.get(key)
        if replica is not None and replica.finish(key):
            replica.since = now

    def alone(self, key: int) -> bool:
        """Whether a request's prefill is under way and has had its replica to itself so far."""
        replica = self._at.get(key)
        return replica is not None and replica.alone and key in replica.doing

    def drop(self, key: int, now: float) -> None:
        """The request is over for this queue: done, failed, or its client left, waiting or dispatched."""
        if self._known.pop(key, None) is None:
            return
        if self._release(key, now) is None:
            self._line.remove(key)

    def retry(self, key: int, now: float) -> str | None:
        """A dispatched request failed where it was: send it to another ready replica at once (it has had its turn), to
        the same one if it is the only one ready, or back in line (None) if none is."""
        job, failed = self._known[key], self._release(key, now)
        replica = self._elsewhere(failed)
        if replica is None:
            self._enqueue(job)
            return None
        self._send(job, replica, self._seconds_on(job, replica), now)
        return replica.name

    def step(self, now: float) -> list[Dispatch]:
        """Decide everything that can be decided at `now`."""
        sent: list[Dispatch] = []
        while self.in_line:
            replica = self._least()
            if replica is None:
                break
            key = self._next(replica, now)
            if key is None:
                break
            job = self._known[key]
            replica = self._preferred(job, replica)
            self._send(job, replica, self._seconds_on(job, replica), now)
            sent.append(Dispatch(key, replica.name))
        return sent

    def _next(self, replica: Replica, now: float) -> int | None:
        """Choose who goes to the least-loaded replica, or nobody."""
        while True:
            late, first = self._line.first_late(), self._line.first()
            if late is not None and first is not None and self._line.credit >= late.size and self._room(replica):
                return self._line.take_late(on_credit=True).key
            if first is None:
                nearly_idle = not replica.doing or replica.work < NEARLY_IDLE * self.theta
                return self._line.take_late(on_credit=False).key if late is not None and nearly_idle else None
            if not self._room(replica):
                return None
            job = self._known[first.key]
            chosen = self._preferred(job, replica)
            if not self._late(job, chosen, self._seconds_on(job, chosen), now):
                return self._line.take().key
            self._line.demote()

    def _late(self, job: Job, replica: Replica, seconds: float, now: float) -> bool:
        """Whether `seconds` of prefill behind what is left on a replica would end too late."""
        if self.ttft_budget is None:
            return False
        left = max(0.0, replica.work - (now - replica.since)) if replica.doing else 0.0
        return now - job.arrived + left + seconds > self.ttft_budget

    def _seconds_on(self, job: Job, replica: Replica) -> float:
        return self.seconds(job.tokens if replica.name == job.affine else job.full_tokens)

    def _room(self, replica: Replica) -> bool:
        return not replica.doing or replica.work < self.theta

    def _preferred(self, job: Job, least: Replica) -> Replica:
        """The replica that holds a job's prefix, if it may be sent it."""
        affine = self._replicas.get(job.affine) if job.affine is not None else None
        if affine is None or not affine.ready or not self._room(affine):
            return least
        return affine if self.slots is None or affine.held < self.slots else least

    def _enqueue(self, job: Job) -> None:
        rank = job.tokens if self.order is Order.SHORTEST_FIRST else job.arrived
        self._line.add(Waiting(job.key, rank, self.seconds(job.tokens), job.tokens, job.arrived))

    def _release(self, key: int, now: float) -> Replica | None:
        replica = self._at.get(key)
        if replica is not None and key in replica.doing:
            replica.since = now
        return self._leave(key)

    def _send(self, job: Job, replica: Replica, seconds: float, now: float) -> None:
        if not replica.doing:
            replica.since = now
        self._place(job.key, replica, seconds)

"""What the queues in front of prefill and of decode have in common: one line, and the replicas that hold those who left it.

A request is known from `push` to its end; meanwhile it either waits in the line or is at one replica. What a replica has
to do is counted in the queue's own unit (seconds of prefill, tokens of context). Replicas that are not ready get nothing
new, and stay on the books until what they hold is over. Linear in replicas, O(log n) in requests. Standard library only.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar

from steelyard.decide.queue.backlog import Backlog


class Request(Protocol):
    """What every request says of itself: its key, and when it first arrived (seconds)."""

    @property
    def key(self) -> int: ...
    @property
    def arrived(self) -> float: ...


R = TypeVar("R", bound=Request)


class Dispatch(NamedTuple):
    """The decision that request `key` goes to `replica` now."""

    key: int
    replica: str


@dataclass(slots=True)
class Replica:
    """One engine as a queue sees it."""

    name: str
    ready: bool = True
    turn: int = 0  # serial of the last dispatch: equals take turns
    work: float = 0.0  # what is dispatched and unfinished, in the queue's unit
    doing: dict[int, float] = field(default_factory=dict)  # key -> its share of the work
    held: int = 0  # slots taken: by those it works for, and by those whose work is done and that stay
    alone: bool = False  # what it does now has had it to itself from its start
    since: float = 0.0  # when its first unfinished work was started, as far as we know (seconds)

    def finish(self, key: int) -> bool:
        """Take a request's work off; False if it has none here any more."""
        share = self.doing.pop(key, None)
        if share is None:
            return False
        self.work = max(0.0, self.work - share) if self.doing else 0.0
        return True


class RoleQueue(Generic[R]):
    """The books of one role. What goes where, and when, is for the queue of the role to say."""

    def __init__(self, slots: int | None) -> None:
        """`slots` bounds the requests that one replica may hold for us; None: no bound."""
        self.slots = slots
        self._line = Backlog()
        self.in_line = self._line.waiting  # those that wait, by key in order of entry; to be read only
        self._known: dict[int, R] = {}  # waiting or dispatched
        self._at: dict[int, Replica] = {}  # where a dispatched request is
        self._replicas: dict[str, Replica] = {}
        self._ready: list[Replica] = []
        self._turn = 0

    def __len__(self) -> int:
        """How many wait here."""
        return len(self.in_line)

    @property
    def queued_tokens(self) -> float:
        """Tokens of those that wait here."""
        return self._line.tokens

    def waiting(self) -> list[int]:
        """Keys of those that wait here, in order of entry."""
        return self._line.keys()

    def any_ready(self) -> bool:
        """Whether some replica can be sent work at all."""
        return bool(self._ready)

    def empty(self) -> bool:
        """Whether there is neither a request nor a replica left."""
        return not self._known and not self._replicas

    def running_on(self, name: str) -> int:
        """How many requests a replica holds, ready or not."""
        replica = self._replicas.get(name)
        return replica.held if replica is not None else 0

    def retiring(self) -> bool:
        """Whether requests are on a replica that is not ready any more."""
        return len(self._replicas) > len(self._ready)

    def set_ready(self, names: Iterable[str]) -> None:
        """Tell which replicas are ready now. Others get no new work; what runs there is still accounted for."""
        ready = set(names)
        for name in sorted(ready - self._replicas.keys()):
            self._replicas[name] = Replica(name)
        for name, replica in list(self._replicas.items()):
            replica.ready = name in ready
            if not replica.ready and not replica.held:
                del self._replicas[name]
        self._ready = [replica for replica in self._replicas.values() if replica.ready]

    def _learn_of(self, request: R) -> None:
        if request.key in self._known:
            raise ValueError(f"request {request.key} is already known")
        self._known[request.key] = request

    def _least(self) -> Replica | None:
        """The ready replica with a free slot that has the least to do."""
        least, slots = None, self.slots
        for replica in self._ready:
            if slots is not None and replica.held >= slots:
                continue
            if least is not None and replica.work > least.work:
                continue
            if (
                least is None
                or replica.work < least.work
                or (replica.held, replica.turn, replica.name) < (least.held, least.turn, least.name)
            ):
                least = replica
        return least

    def _elsewhere(self, failed: Replica | None) -> Replica | None:
        """Where a request whose replica failed goes at once: to another ready one if there is one, slots or not."""
        others = [replica for replica in self._ready if replica is not failed] or self._ready
        return min(others, key=lambda r: (r.work, r.held, r.turn, r.name), default=None)

    def _place(self, key: int, replica: Replica, share: float) -> None:
        replica.alone = not replica.doing
        replica.doing[key] = share
        replica.work += share
        replica.held += 1
        self._at[key] = replica
        self._turn = replica.turn = self._turn + 1

    def _leave(self, key: int) -> Replica | None:
        """Take a request off its replica. Return which it was, None if it was at none."""
        replica = self._at.pop(key, None)
        if replica is None:
            return None
        replica.finish(key)
        replica.held -= 1
        if not replica.ready and not replica.held:
            self._replicas.pop(replica.name, None)
        return replica

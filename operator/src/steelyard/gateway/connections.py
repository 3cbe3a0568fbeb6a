"""The open connections of one port, bounded: where there are too many, the one at rest for longest makes room.

A connection is at rest while no request of it is being answered: it is unused, or its request has arrived in part only.
Ten thousand idle connections so cost nobody an answer, and no more descriptors and memory than the bound. Where all are at
work the newcomer is refused: it would take from them. How long one may rest at all is for the connection's own deadlines.
"""

import resource
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

_LOOKED_AT = 8  # connections at rest that are passed over at most, because what they were answered is still on its way


class Connection(Protocol):
    """What a connection must be able to do here."""

    def flushing(self) -> bool:
        """Return whether something written is still on its way."""

    def sweep(self, now: float) -> None:
        """Look at the deadlines."""

    def abort(self) -> None:
        """Break off at once."""


C = TypeVar("C", bound=Connection)


class Connections(Generic[C]):
    """All connections of a port. Each enters by `admit`, leaves by `remove`, and keeps its own entry in `resting`."""

    def __init__(self, most: Callable[[], int]) -> None:
        """`most` says how many there may be now."""
        self._most = most
        self.open: set[C] = set()
        self.resting: dict[C, None] = {}  # the one at rest for longest is first
        self.evicted = self.refused = 0

    def admit(self, connection: C) -> bool:
        """Take a new connection, at the cost of one at rest if there are too many; False if it must be refused."""
        if len(self.open) >= self._most():
            victim = self._longest_at_rest()
            if victim is None:
                self.refused += 1
                return False
            self.evicted += 1
            self.remove(victim)
            victim.abort()
        self.open.add(connection)
        self.resting[connection] = None
        return True

    def remove(self, connection: C) -> None:
        """Forget a connection; harmless if told twice."""
        self.open.discard(connection)
        self.resting.pop(connection, None)

    def sweep(self, now: float) -> None:
        """Have every connection look at its deadlines."""
        for connection in list(self.open):
            connection.sweep(now)

    def _longest_at_rest(self) -> C | None:
        for _ in range(min(_LOOKED_AT, len(self.resting))):
            connection = next(iter(self.resting))
            if not connection.flushing():
                return connection
            self.resting[connection] = self.resting.pop(connection)  # to the end: it is not asked again at once
        return next(iter(self.resting), None)


def descriptor_limit() -> int:
    """Raise this process's limit of descriptors as far as it may, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard if hard != resource.RLIM_INFINITY else 2**31

"""The waiting line of one role: those that can still meet their objective in order, the late ones behind them.

The one idea: a request that will miss its first-token objective anyway must not sink the others, and must not starve
either. On-time requests wait in a heap; a request found to be late moves to a first-in-first-out list; every on-time
dispatch made while somebody is late earns the late ones `LATE_CREDIT` of its size, which they spend to be served early.

Deterministic and free of clocks. Every step costs O(log n) amortised in the number waiting: a removed entry stays in the
heap as a tombstone, and the heap is rebuilt once tombstones are the majority. Standard library only.
"""

from collections import deque
from heapq import heapify, heappop, heappush
from typing import NamedTuple

LATE_CREDIT = 0.1  # share of the on-time work that late requests may take from it


class Waiting(NamedTuple):
    """One request in line. `rank` orders the heap; `size` is what it costs in the line's own unit (seconds, sequences)."""

    key: int
    rank: float
    size: float
    tokens: float
    arrived: float


class Backlog:
    """An ordered line with late-last and credit."""

    def __init__(self) -> None:
        self.waiting: dict[int, Waiting] = {}  # by key, in order of entry; to be read only
        self._heap: list[tuple[float, int, Waiting]] = []
        self._late: deque[Waiting] = deque()
        self._late_keys: set[int] = set()
        self._serial = 0
        self._tokens = 0.0
        self._late_size = 0.0
        self.credit = 0.0

    def __len__(self) -> int:
        return len(self.waiting)

    def __contains__(self, key: int) -> bool:
        return key in self.waiting

    @property
    def tokens(self) -> float:
        """Tokens of all that wait, late ones included."""
        return self._tokens if self.waiting else 0.0

    @property
    def late_count(self) -> int:
        """How many wait in the late list."""
        return len(self._late_keys)

    @property
    def late_size(self) -> float:
        """Cost of all that wait in the late list, in the line's unit."""
        return self._late_size if self._late_keys else 0.0

    def keys(self) -> list[int]:
        """Keys of everybody in line, in order of entry."""
        return list(self.waiting)

    def add(self, waiting: Waiting) -> None:
        """Put a request in line, on time until shown otherwise. Raises ValueError if its key already waits."""
        if waiting.key in self.waiting:
            raise ValueError(f"request {waiting.key} already waits")
        self.waiting[waiting.key] = waiting
        self._tokens += waiting.tokens
        self._serial += 1
        heappush(self._heap, (waiting.rank, self._serial, waiting))

    def remove(self, key: int) -> bool:
        """Take a request out of line, wherever it stands. Return whether it was there."""
        waiting = self.waiting.pop(key, None)
        if waiting is None:
            return False
        self._tokens -= waiting.tokens
        if key in self._late_keys:
            self._late_keys.remove(key)
            self._late_size -= waiting.size
        self._compact()
        return True

    def first(self) -> Waiting | None:
        """Return who goes next among those on time."""
        while self._heap:
            waiting = self._heap[0][2]
            if self.waiting.get(waiting.key) is waiting:
                return waiting
            heappop(self._heap)
        return None

    def first_late(self) -> Waiting | None:
        """Return who has been late for longest."""
        while self._late:
            waiting = self._late[0]
            if self.waiting.get(waiting.key) is waiting:
                return waiting
            self._late.popleft()
        return None

    def demote(self) -> None:
        """Move the first of those on time to the end of the late list."""
        waiting = self.first()
        if waiting is None:
            raise ValueError("nobody on time to demote")
        heappop(self._heap)
        self._late.append(waiting)
        self._late_keys.add(waiting.key)
        self._late_size += waiting.size

    def take(self) -> Waiting:
        """Serve the first of those on time; the late ones earn credit by it, if there are any."""
        waiting = self.first()
        if waiting is None:
            raise ValueError("nobody on time to serve")
        heappop(self._heap)
        self._forget(waiting)
        self.credit = self.credit + LATE_CREDIT * waiting.size if self._late_keys else 0.0
        return waiting

    def take_late(self, *, on_credit: bool) -> Waiting:
        """Serve the first of the late ones, paying with credit where on-time work was passed over for it."""
        waiting = self.first_late()
        if waiting is None:
            raise ValueError("nobody late to serve")
        self._late.popleft()
        self._late_keys.remove(waiting.key)
        self._late_size -= waiting.size
        self._forget(waiting)
        if on_credit:
            self.credit -= waiting.size
        return waiting

    def _forget(self, waiting: Waiting) -> None:
        del self.waiting[waiting.key]
        self._tokens -= waiting.tokens

    def _compact(self) -> None:
        if len(self._heap) + len(self._late) <= 2 * len(self.waiting) + 64:
            return
        self._heap = [item for item in self._heap if self.waiting.get(item[2].key) is item[2]]
        heapify(self._heap)
        self._late = deque(waiting for waiting in self._late if self.waiting.get(waiting.key) is waiting)

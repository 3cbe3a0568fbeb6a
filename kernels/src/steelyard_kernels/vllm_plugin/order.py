"""The order of an engine's waiting line: shortest first among those that can still meet their objective, the late ones last.

This is the gateway's order for people who bring their own router. A request is late once the time it has waited, the prefill work
before it, and its own would exceed the objective for the first token; it can no longer be saved, so it must not sink the others.
Every request served on time while somebody is late earns the late ones a tenth of its own work, which they spend to be served
early, oldest first; so nobody starves. Without an objective nobody is late, and the order is shortest first.

Times are arguments, in seconds. Plain Python: no vLLM and no torch.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import NamedTuple

LATE_CREDIT = 0.1  # share of the on-time work that late requests may take from it


class Objective(NamedTuple):
    """The first token's objective in seconds (None: none), and what a prefill takes: `fixed` + tokens · `per_token` seconds."""

    ttft: float | None
    per_token: float
    fixed: float = 0.0

    def prefill(self, tokens: float) -> float:
        """Seconds that a prefill of this many tokens takes."""
        return self.fixed + tokens * self.per_token


class Entry(NamedTuple):
    """A waiting request: tokens still to be prefilled, and when it arrived."""

    key: str
    tokens: int
    arrived: float


class Line:
    """The line. `peek` decides who is next and `take` serves exactly that one."""

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self.credit = 0.0
        self._entries: dict[str, Entry] = {}
        self._heap: list[tuple[int, int, str]] = []
        self._late: deque[str] = deque()
        self._serial = 0

    def __len__(self) -> int:
        return len(self._entries)

    def entries(self) -> list[Entry]:
        """Everybody in line, in order of entry."""
        return list(self._entries.values())

    def add(self, entry: Entry) -> None:
        """Put a request in line; ValueError when its key waits already."""
        if entry.key in self._entries:
            raise ValueError(f"request {entry.key} waits already")
        self._entries[entry.key] = entry
        self._serial += 1
        heapq.heappush(self._heap, (entry.tokens, self._serial, entry.key))

    def remove(self, key: str) -> bool:
        """Take a request out, wherever it stands; whether it was there."""
        if self._entries.pop(key, None) is None:
            return False
        self._heap = [one for one in self._heap if one[2] != key]
        heapq.heapify(self._heap)
        self._late = deque(one for one in self._late if one != key)
        return True

    def peek(self, now: float, ahead: float = 0.0) -> Entry | None:
        """Who is next at `now`, when `ahead` seconds of prefill are under way; None when nobody waits."""
        self._demote(now, ahead)
        late, first = self._first_late(), self._first()
        if late is None or first is None:
            return first or late
        return late if self.credit >= self._seconds(late) else first

    def take(self, now: float, ahead: float = 0.0) -> Entry:
        """Serve who is next; ValueError when nobody waits."""
        entry = self.peek(now, ahead)
        if entry is None:
            raise ValueError("nobody waits")
        if self._late and entry.key == self._late[0]:
            if self._heap:
                self.credit -= self._seconds(entry)
        else:
            self.credit = self.credit + LATE_CREDIT * self._seconds(entry) if self._late else 0.0
        self.remove(entry.key)
        return entry

    def _demote(self, now: float, ahead: float) -> None:
        """Move those at the head of the line that can no longer be in time behind the others."""
        ttft = self.objective.ttft
        while ttft is not None and self._heap:
            entry = self._entries[self._heap[0][2]]
            if now - entry.arrived + ahead + self._seconds(entry) <= ttft:
                return
            heapq.heappop(self._heap)
            self._late.append(entry.key)

    def _first(self) -> Entry | None:
        return self._entries[self._heap[0][2]] if self._heap else None

    def _first_late(self) -> Entry | None:
        return self._entries[self._late[0]] if self._late else None

    def _seconds(self, entry: Entry) -> float:
        return self.objective.prefill(entry.tokens)

"""A keyed work queue as a pure state machine: one run per key at a time, asks fold, failures back off with jitter.

Time and chance are arguments, so the tests can drive it through any history. The laws it keeps:

- A key runs at most once at a time. An ask during a run leads to exactly one more run after it, however many asks came.
- Every ask is followed by a run that starts after it (nothing is lost), unless the queue is stopped.
- A failed key waits 1 s · 2^(failures−1), at most five minutes, times a factor drawn from [½, 1]. Ordinary asks do not
  shorten that wait, since our own status writes and crashing pods cause them; an urgent one (the user changed the
  spec) does.
- A key that succeeded is due again after the time its run returned, if it returned one (the periodic resync, B11).
"""

import heapq
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

BACKOFF_START_SECONDS = 1.0
BACKOFF_LIMIT_SECONDS = 300.0


@dataclass
class _Entry:
    due: float | None = None  # when to run next; None while nothing is asked
    running: bool = False
    failures: int = 0
    backing_off: bool = False


@dataclass
class WorkQueue(Generic[K]):
    """The queue of keys; not thread-safe, meant for one event loop."""

    _entries: dict[K, _Entry] = field(default_factory=dict)
    _heap: list[tuple[float, int, K]] = field(default_factory=list)
    _sequence: int = 0

    def ask(self, key: K, now: float, after: float = 0.0, urgent: bool = False) -> None:
        """Want a run of `key` at the latest `after` seconds from now; an earlier date that stands is kept."""
        entry = self._entries.setdefault(key, _Entry())
        due = now + after
        if urgent:
            entry.failures = 0
            entry.backing_off = False
        if entry.backing_off and not entry.running:
            return
        if entry.due is None or due < entry.due:
            self._schedule(key, entry, due)

    def take(self, now: float) -> K | None:
        """Give the key that has been due longest and mark it as running, or None when none is due."""
        while self._heap and self._heap[0][0] <= now:
            due, _, key = heapq.heappop(self._heap)
            entry = self._entries.get(key)
            if entry is None or entry.due != due or entry.running:
                continue  # an older date of this key; the one that counts is in the heap too, or comes after the run
            entry.due = None
            entry.running = True
            entry.backing_off = False
            return key
        return None

    def succeeded(self, key: K, now: float, again_after: float | None = None) -> None:
        """End a run; an ask that came meanwhile makes the key due at once, else it is due after `again_after`."""
        entry = self._finish(key)
        entry.failures = 0
        if again_after is not None and (entry.due is None or now + again_after < entry.due):
            entry.due = now + again_after
        if entry.due is None:
            del self._entries[key]
        else:
            self._schedule(key, entry, entry.due)

    def failed(self, key: K, now: float, chance: float) -> float:
        """End a run that failed and give the seconds until the next; `chance` in [0, 1) draws the jitter."""
        entry = self._finish(key)
        entry.failures += 1
        wait = min(BACKOFF_LIMIT_SECONDS, BACKOFF_START_SECONDS * 2.0 ** min(entry.failures - 1, 30))
        wait *= 0.5 + 0.5 * chance
        entry.backing_off = True
        self._schedule(key, entry, now + wait)
        return wait

    def forget(self, key: K) -> None:
        """Drop a key whose object is gone; a run in progress still has to be ended by `succeeded` or `failed`."""
        entry = self._entries.get(key)
        if entry is None:
            return
        entry.due = None
        if not entry.running:
            del self._entries[key]

    def next_due(self) -> float | None:
        """Give the moment of the earliest waiting run, or None when nothing waits."""
        while self._heap:
            due, _, key = self._heap[0]
            entry = self._entries.get(key)
            if entry is not None and entry.due == due and not entry.running:
                return due
            heapq.heappop(self._heap)
        return None

    def oldest_wait(self, now: float) -> float:
        """Give the seconds that the longest-overdue key has waited; 0 when nothing is overdue (the liveness check)."""
        overdue = [now - e.due for e in self._entries.values() if e.due is not None and not e.running and e.due <= now]
        return max(overdue, default=0.0)

    def failures(self, key: K) -> int:
        """Give how many runs of this key failed in a row."""
        entry = self._entries.get(key)
        return entry.failures if entry else 0

    def __len__(self) -> int:
        return len(self._entries)

    def _finish(self, key: K) -> _Entry:
        entry = self._entries.get(key)
        if entry is None or not entry.running:
            raise ValueError(f"{key!r} is not running")
        entry.running = False
        return entry

    def _schedule(self, key: K, entry: _Entry, due: float) -> None:
        entry.due = due
        self._sequence += 1
        heapq.heappush(self._heap, (due, self._sequence, key))

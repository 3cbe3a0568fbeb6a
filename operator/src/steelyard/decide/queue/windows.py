"""Uncached prompt tokens arrived in each quarter second of the last four minutes.

Bursts that cost first tokens last 0.2–20 s, too fine for a scraped counter: each gateway keeps these exact windows, and
the operator reads them. Windows are aligned to the wall clock (window k covers [k/4, (k+1)/4) seconds since the epoch),
so that those of several gateways add up. Standard library only; the time is an argument.
"""

from math import floor

WINDOW_SECONDS = 0.25
WINDOWS = 960


class ArrivalWindows:
    """A ring of the current window and the `WINDOWS` complete ones before it."""

    def __init__(self) -> None:
        self._ring = [0.0] * (WINDOWS + 1)
        self._current: int | None = None  # index of the newest window

    def add(self, at_seconds: float, tokens: float) -> None:
        """Count `tokens` in the window of unix time `at_seconds`. A time that has left the ring is ignored; a correction
        may be negative, and never takes a window below zero."""
        index = floor(at_seconds / WINDOW_SECONDS)
        if index != self._current:
            self._advance(index)
        if index > (self._current or 0) - len(self._ring):
            place = index % len(self._ring)
            self._ring[place] = max(0.0, self._ring[place] + tokens)

    def complete(self, now_seconds: float) -> tuple[float, list[float]]:
        """Return (end of the last complete window in unix seconds, tokens of the last `WINDOWS` ones, oldest first)."""
        self._advance(floor(now_seconds / WINDOW_SECONDS))
        newest = self._current or 0
        # A clock that was set back must not hide what has arrived since: the ring's newest window rules.
        return newest * WINDOW_SECONDS, [self._ring[i % len(self._ring)] for i in range(newest - WINDOWS, newest)]

    def _advance(self, index: int) -> None:
        if self._current is None:
            self._current = index
            return
        if index <= self._current:
            return
        for passed in range(max(self._current + 1, index - len(self._ring) + 1), index + 1):
            self._ring[passed % len(self._ring)] = 0.0
        self._current = index

"""What a look at a service may leave out: kinds that were in place, and of which no watch has told since.

A look that ends with nothing to do leaves the kinds that nobody counts (all but Deployments and pods) at rest. One of them is
read again when a watch tells of one of its objects, and all of them when other children come into force, when a Deployment is
not as it was, or when the last look at everything is older than the resync period. So a lost event costs what it always did:
what it would have told of is seen at the next full look. What is kept of a settled look is small: names, hashes, and the
hardware as it was read, of which all services share one copy.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

from steelyard.observe.resources import ACCELERATOR, CONTROLLER_REVISION
from steelyard.observe.snapshot import HELD, Settled

Key = tuple[str, str]  # namespace, name of the service

RESTING = HELD | {CONTROLLER_REVISION.kind, ACCELERATOR.kind}


@dataclass(frozen=True)
class Left:
    """The kinds that a look may leave out, as long as what it finds agrees with what was `settled`."""

    kinds: frozenset[str] = frozenset()
    settled: Settled | None = None


@dataclass
class _Known:
    looked: float = float("-inf")  # when everything was read last, in seconds
    settled: Settled | None = None
    kinds: set[str] = field(default_factory=set)  # at rest
    told: set[str] = field(default_factory=set)  # since the present look began


class Rest:
    """Told of events on the loop, asked by the workers' threads; one look a service at a time."""

    def __init__(self, full_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._full_seconds = full_seconds
        self._clock = clock
        self._known: dict[Key, _Known] = {}
        self._lock = Lock()

    def begin(self, key: Key) -> Left:
        """A look begins; say what it may leave out."""
        with self._lock:
            known = self._known.setdefault(key, _Known())
            known.told.clear()
            if self._clock() - known.looked >= self._full_seconds:
                known.kinds.clear()
                known.looked = self._clock()
            return Left(frozenset(known.kinds), known.settled)

    def told(self, key: Key, kind: str) -> None:
        """An object of this kind appeared, changed or went."""
        with self._lock:
            if known := self._known.get(key):
                known.told.add(kind)
                known.kinds.discard(kind)

    def settled(self, key: Key, found: Settled) -> None:
        """The look ended: the children in force are in place, and nothing was written."""
        with self._lock:
            if known := self._known.get(key):
                known.kinds = set(RESTING) - known.told
                known.settled = found

    def forget(self, key: Key) -> None:
        """The service is gone."""
        with self._lock:
            self._known.pop(key, None)

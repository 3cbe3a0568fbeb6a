"""What a look at a service may leave out: kinds of children that were in place, and of which no watch has told since.

A look that ends with nothing to do leaves the kinds that nobody counts (all but Deployments) at rest. One of them is read again
when a watch tells of one of its objects, and all of them when other children come into force, or when the last look at
everything is older than the resync period. So a lost event costs what it always did: what it would have told of is seen at
the next full look. Only names are kept here, no objects, so there is nothing that could be stale.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

from steelyard.observe.resources import CHILD_KINDS, DEPLOYMENT

Key = tuple[str, str]  # namespace, name of the service

RESTING = frozenset(resource.kind for resource in CHILD_KINDS) - {DEPLOYMENT.kind}


@dataclass(frozen=True)
class Left:
    """The kinds that a look may leave out, as long as this revision's children are the ones in force."""

    kinds: frozenset[str] = frozenset()
    revision: str = ""


@dataclass
class _Known:
    looked: float = float("-inf")  # when everything was read last, in seconds
    revision: str = ""
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
            return Left(frozenset(known.kinds), known.revision)

    def told(self, key: Key, kind: str) -> None:
        """An object of this kind appeared, changed or went."""
        with self._lock:
            if known := self._known.get(key):
                known.told.add(kind)
                known.kinds.discard(kind)

    def settled(self, key: Key, revision: str) -> None:
        """The look ended: this revision's children are in force and in place, and nothing was written."""
        with self._lock:
            if known := self._known.get(key):
                known.kinds = set(RESTING) - known.told
                known.revision = revision

    def forget(self, key: Key) -> None:
        """The service is gone."""
        with self._lock:
            self._known.pop(key, None)

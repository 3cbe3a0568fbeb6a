"""How pods come and go: a watch that notes for each pod when it was told to go, when it was gone, how its programs ended, and
how much of a service those that stay could serve at any time."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import IO, Any, Protocol

from steelyard.api.labels import KV_GROUP, POOL, ROLE

from e2e.errors import ToolError
from e2e.platform import Platform


@dataclass(frozen=True)
class Departure:
    """A pod that was told to go. Times are seconds of time.monotonic(), as this machine heard of them."""

    name: str
    labels: Mapping[str, str]
    grace: float  # seconds that it was given when it was told
    told: float
    gone: float | None = None  # None: it is still there
    exits: tuple[int, ...] = ()  # of its containers, as last reported

    @property
    def orderly(self) -> bool:
        """Whether it is gone, ended all its programs by itself with status 0, and took less than it was given."""
        return self.gone is not None and self.gone - self.told < self.grace and bool(self.exits) and not any(self.exits)


class Departures:
    """The pods of a watch that were told to go, in that order."""

    def __init__(self) -> None:
        self._found: dict[str, Departure] = {}  # by uid
        self.ended = threading.Event()

    def all(self) -> tuple[Departure, ...]:
        """Every one so far. Raises ToolError when the watch has ended: then silence means nothing."""
        if self.ended.is_set():
            raise ToolError("The watch of pods has ended; what left since then is not known.")
        return tuple(self._found.values())

    def leaving(self) -> tuple[str, ...]:
        """The names of those that are not gone yet."""
        return tuple(one.name for one in self.all() if one.gone is None)

    def note(self, event: Mapping[str, Any], now: float) -> None:
        """Note one event of a watch of pods."""
        pod = event["object"]
        meta = pod["metadata"]
        uid = meta["uid"]
        told = "deletionTimestamp" in meta
        if uid not in self._found:
            if not told and event["type"] != "DELETED":
                return
            grace = float(meta.get("deletionGracePeriodSeconds", 0))
            self._found[uid] = Departure(meta["name"], meta.get("labels", {}), grace, now)
        statuses = pod.get("status", {}).get("containerStatuses", [])
        ends = [status["state"]["terminated"]["exitCode"] for status in statuses if "terminated" in status["state"]]
        if ends:
            self._found[uid] = replace(self._found[uid], exits=tuple(ends))
        if event["type"] == "DELETED":
            self._found[uid] = replace(self._found[uid], gone=now)


class Served:
    """The share of a service that could be served: within a kv-group, the least share that a role has.

    Counted are pods that have been ready and were not told to go. A probe that fails for a moment on a busy machine is nobody's
    decision, so it changes nothing here.
    """

    def __init__(self, sizes: Mapping[str, int]) -> None:
        """`sizes` are the wanted replicas by role."""
        self._sizes = dict(sizes)
        self._serving: dict[str, tuple[str, str]] = {}  # by uid: kv-group and role
        self.least: Fraction | None = None  # since `begin`
        self.ended = threading.Event()

    def begin(self) -> None:
        """Forget what was the least."""
        self.least = self.now()

    def now(self) -> Fraction:
        """What could be served after the latest event."""
        ready = Counter(self._serving.values())
        groups = {group for group, _ in ready}
        parts = (min(Fraction(ready[(group, role)], n) for role, n in self._sizes.items()) for group in groups)
        return sum(parts, Fraction(0))

    def note(self, event: Mapping[str, Any], now: float) -> None:
        """Note one event of a watch of pods."""
        meta, status = event["object"]["metadata"], event["object"].get("status", {})
        marks = meta.get("labels", {})
        if POOL not in marks:
            return
        ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", []))
        if "deletionTimestamp" in meta or event["type"] == "DELETED":
            self._serving.pop(meta["uid"], None)
        elif ready or meta["uid"] in self._serving:
            self._serving[meta["uid"]] = marks[KV_GROUP], marks[ROLE]
        if self.least is not None:
            self.least = min(self.least, self.now())


class Listener(Protocol):
    """What hears the events of a watch, and is told when it has ended."""

    ended: threading.Event

    def note(self, event: Mapping[str, Any], now: float) -> None:
        """Hear one event, at a time of time.monotonic()."""


def follow(output: IO[str], listener: Listener) -> None:
    """Pass on events, one JSON document a line, until the output ends."""
    for line in output:
        listener.note(json.loads(line), time.monotonic())
    listener.ended.set()


@contextmanager
def watch(platform: Platform, namespace: str, selector: str) -> Iterator[Departures]:
    """Note the departures of the pods of a namespace that match `selector`, until the end of the block."""
    found = Departures()
    with listened(platform, namespace, selector, found):
        yield found


@contextmanager
def listened(platform: Platform, namespace: str, selector: str, listener: Listener) -> Iterator[None]:
    """Let `listener` hear what becomes of the pods of a namespace that match `selector`, until the end of the block."""
    kubectl = [str(platform.cluster.kubectl_program), f"--kubeconfig={platform.cluster.kubeconfig}"]
    command = [
        *kubectl,
        "get",
        "pods",
        "-n",
        namespace,
        "-l",
        selector,
        "--watch",
        "--output-watch-events",
        "-o",
        "json",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        thread = threading.Thread(target=follow, args=(process.stdout, listener), name="departures", daemon=True)
        thread.start()
        try:
            yield
        finally:
            process.terminate()
            thread.join(5)

"""How pods leave: a watch that notes for each pod when it was told to go, when it was gone, and how its programs ended."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import IO, Any

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

    def follow(self, output: IO[str]) -> None:
        """Note events, one JSON document a line, until the output ends."""
        for line in output:
            self.note(json.loads(line), time.monotonic())
        self.ended.set()

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


@contextmanager
def watch(platform: Platform, namespace: str, selector: str) -> Iterator[Departures]:
    """Note the departures of the pods of a namespace that match `selector`, until the end of the block."""
    found = Departures()
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
        listener = threading.Thread(target=found.follow, args=(process.stdout,), name="departures", daemon=True)
        listener.start()
        try:
            yield found
        finally:
            process.terminate()
            listener.join(5)

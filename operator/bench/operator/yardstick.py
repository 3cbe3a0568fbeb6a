"""A fixed piece of work, done again and again beside a measurement: how much CPU time the machine takes for it just then.

Other work on a machine empties its caches and shares its cores' units, so the same instructions take more CPU time; on two
shared cores it was up to twice. What is compared between two windows is therefore counted in such pieces, not in milliseconds.
The piece resembles what the operator does: it parses a document, walks through it, and writes and hashes it.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import yaml
from pydantic_core import from_json
from steelyard.apply.drift import difference

from e2e.cache import REPOSITORY

EVERY_SECONDS = 0.5
DOCUMENT = REPOSITORY / "docs" / "examples" / "smollm2.yaml"
COPIES = 100  # of the document in the text, of about 70 KB


class Yardstick:
    """Takes samples until the block ends; `ms` is the median of the thread's CPU time for a piece."""

    def __init__(self) -> None:
        body = yaml.safe_load(DOCUMENT.read_text())
        self._text = json.dumps([body] * COPIES)
        self._spent: list[float] = []
        self._ended = threading.Event()

    @property
    def ms(self) -> float:
        """What a piece took, in milliseconds; at least one was done."""
        return 1e3 * statistics.median(self._spent)

    def once(self) -> None:
        """Do one piece."""
        began = time.thread_time()
        parsed = from_json(self._text)
        for body in parsed:
            difference({"items": body}, {"items": {**body, "spec": dict(body["spec"])}})
        hashlib.sha256(json.dumps(parsed, sort_keys=True).encode()).hexdigest()
        self._spent.append(time.thread_time() - began)

    def run(self) -> None:
        """Do pieces until told to end."""
        while True:
            self.once()
            if self._ended.wait(EVERY_SECONDS):
                return

    def end(self) -> None:
        self._ended.set()


@contextmanager
def beside() -> Iterator[Yardstick]:
    """Take samples in a thread while the block runs."""
    yardstick = Yardstick()
    yardstick.once()
    thread = threading.Thread(target=yardstick.run, name="yardstick")
    thread.start()
    try:
        yield yardstick
    finally:
        yardstick.end()
        thread.join()

"""A run from outside: started, watched, marked, stopped, and its result. The client works in processes of its own."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing import Pipe
from typing import Any, Self

from e2e.cache import REPOSITORY
from e2e.load.drive import Progress, resolve, tls
from e2e.load.errors import LoadError
from e2e.load.health import Health, Verdict, judge
from e2e.load.records import Outcome, Record, account
from e2e.load.spec import Planned, Spec, plan

READY, STOP, STOP_NOW = "ready", "stop", "stop now"  # what a worker says first; its orders
_LEAD_SECONDS = 0.1  # between the last process's ready and the run's start


@dataclass(frozen=True)
class Mark:
    """Something that happened during a run: a fault injected, a pod deleted."""

    at: float  # seconds since the run's start
    text: str


@dataclass(frozen=True)
class Result:
    """What became of a run: one record per request, in order."""

    spec: Spec
    started: datetime
    records: tuple[Record, ...]
    healths: tuple[Health, ...]
    marks: tuple[Mark, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Whether the client was the bottleneck."""
        return judge(self.records, self.healths)

    @property
    def broken(self) -> tuple[Record, ...]:
        """Requests that were neither answered nor left by us: failed, refused, timed out, hung."""
        return tuple(one for one in self.records if one.outcome not in (Outcome.COMPLETED, Outcome.CANCELLED))

    def count(self, outcome: Outcome, kind: str | None = None) -> int:
        """Requests that ended so."""
        return sum(one.outcome is outcome and kind in (None, one.kind) for one in self.records)

    def explain(self, most: int = 10) -> str:
        """The broken requests in words, for an assertion's message."""
        lines = [
            f"request {one.index} at {one.scheduled:.2f} s: {one.outcome} {one.kind or ''} {one.detail or ''}".rstrip()
            for one in self.broken
        ]
        more = [f"… and {len(lines) - most} more"] if len(lines) > most else []
        return "\n".join([f"{len(lines)} of {len(self.records)} requests broken", *lines[:most], *more])


Launch = Callable[[Sequence[str]], Sequence[str]]


def here(command: Sequence[str]) -> Sequence[str]:
    """Run the client where we are. Another `Launch` may put something before the command that keeps file descriptors, such as
    `nsenter --net`: so a client stands inside a local cluster's network."""
    return command


class Running:
    """A run under way. As a context manager it stops the run at the end of the block; `result` says what became of it.

    with start_load(spec) as run:
        run.mark("kill a pod")
        ...
        result = run.result()
    """

    def __init__(self, spec: Spec, launch: Launch = here) -> None:
        self._spec = spec
        planned, address = plan(spec), resolve(spec.target)
        tls(spec.target)  # what is wrong with it is told here, and not by each process
        parts = [planned[number :: spec.processes] for number in range(spec.processes)]
        self._workers = [_Worker(spec, part, address, launch) for part in parts if part]
        self._marks: list[Mark] = []
        try:
            for worker in self._workers:
                worker.wait_ready()
        except BaseException:
            self._kill()
            raise
        self.began = time.monotonic() + _LEAD_SECONDS
        self._started = datetime.now(UTC)
        for worker in self._workers:
            worker.go(self.began)

    @property
    def seconds(self) -> float:
        """Seconds since the run's start."""
        return time.monotonic() - self.began

    def progress(self) -> Progress:
        """How far the run is; a quarter of a second old at most."""
        parts = [worker.progress for worker in self._workers]
        outcomes: Counter[Outcome] = Counter()
        for part in parts:
            outcomes.update(part.outcomes)
        return Progress(sum(part.sent for part in parts), sum(part.under_way for part in parts), outcomes)

    def mark(self, text: str) -> None:
        """Note that something happens now; the report shows it on its time lines."""
        self._marks.append(Mark(self.seconds, text))

    def stop(self, now: bool = False) -> None:
        """Send nothing more (the rest is `unsent`) and let what is under way end; with `now`, cancel that too."""
        for worker in self._workers:
            worker.order(STOP_NOW if now else STOP)

    def done(self) -> bool:
        """Whether every request has ended."""
        return all(not worker.thread.is_alive() for worker in self._workers)

    def result(self, seconds: float | None = None) -> Result:
        """Wait for the end of every request; raises LoadError when the client failed or `seconds` pass before."""
        deadline = None if seconds is None else time.monotonic() + seconds
        for worker in self._workers:
            worker.thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
            if worker.thread.is_alive():
                raise LoadError(f"The run did not end within {seconds:g} s; {self.progress()}.")
        ends = [worker.end() for worker in self._workers]
        records = account((record for part, _ in ends for record in part), len(self._spec.schedule))
        return Result(self._spec, self._started, records, tuple(health for _, health in ends), tuple(self._marks))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop(now=True)
        for worker in self._workers:
            worker.thread.join(5)
        self._kill()

    def _kill(self) -> None:
        for worker in self._workers:
            worker.kill()


class _Worker:
    """One process, and a thread that hears what it tells."""

    def __init__(self, spec: Spec, planned: tuple[Planned, ...], address: str, launch: Launch) -> None:
        orders, self._orders = Pipe(duplex=False)
        self._reports, reports = Pipe(duplex=False)
        theirs = (orders.fileno(), reports.fileno())
        command = launch([sys.executable, "-m", "e2e.load.worker", *map(str, theirs)])
        self._process = subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.DEVNULL, pass_fds=theirs)
        orders.close()
        reports.close()
        self.progress = Progress(0, 0, Counter())
        self._last: Any = None
        self._send((spec, planned, address))
        self.thread = threading.Thread(target=self._listen, name="load", daemon=True)

    def wait_ready(self) -> None:
        """Return once the process has taken its part."""
        try:
            self._reports.recv()
        except (EOFError, OSError):
            raise LoadError("A process of the load generator did not start; its error is above.") from None

    def go(self, began: float) -> None:
        """Let it begin."""
        self._send(began)
        self.thread.start()

    def order(self, order: str) -> None:
        """Send an order; one that has ended does not mind."""
        self._send(order)

    def end(self) -> tuple[list[Record], Health]:
        """Its records; raises LoadError when there are none."""
        if isinstance(self._last, LoadError):
            raise self._last
        if self._last is None:
            raise LoadError(
                f"A process of the load generator ended with status {self._process.wait()} before its requests did; its "
                "error is above. What became of them is not known."
            )
        records, health = self._last
        return records, health

    def kill(self) -> None:
        """End it, if it has not."""
        self._process.kill()
        self._process.wait()
        self._orders.close()
        self._reports.close()

    def _send(self, message: object) -> None:
        with suppress(OSError):  # it has ended; `end` says how
            self._orders.send(message)

    def _listen(self) -> None:
        with suppress(EOFError, OSError):
            while self._last is None:
                message = self._reports.recv()
                if isinstance(message, Progress):
                    self.progress = message
                else:
                    self._last = message


def start_load(spec: Spec, launch: Launch = here) -> Running:
    """Start a run; it goes on by itself while the caller injects faults."""
    return Running(spec, launch)


def run_load(spec: Spec, launch: Launch = here) -> Result:
    """Run to the end of every request."""
    with start_load(spec, launch) as running:
        return running.result()

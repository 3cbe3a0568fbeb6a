"""One process's part of a run: sends its requests at their moments, whatever the answers do."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from e2e.load.connections import REUSE_SECONDS, Connection
from e2e.load.errors import LoadError
from e2e.load.exchange import Exchange
from e2e.load.health import Health, Monitor
from e2e.load.prompts import Prompts
from e2e.load.records import Kind, Outcome, Record
from e2e.load.spec import Connections, Planned, Spec, Target

_TIMER_GRAIN = 0.001  # uvloop's timers count whole milliseconds
_SLOWEST_SWEEP = 0.25  # seconds between looks at the bounds


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    sent: int
    under_way: int
    outcomes: Counter[Outcome]


def resolve(target: Target) -> str:
    """The address of the target's host. Looked up once, before the run: names are not what is measured."""
    try:
        found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise LoadError(f"The host {target.host!r} of the target's URL is not known here: {error}.") from None
    return str(found[0][4][0])


def tls(target: Target) -> ssl.SSLContext | None:
    """What the server's certificate is checked with; None without TLS. Raises LoadError for a CA file that cannot be used."""
    if not target.secure:
        return None
    try:
        return ssl.create_default_context(cafile=target.ca)
    except OSError as error:
        raise LoadError(f"The CA file {target.ca} cannot be used: {error}.") from None


class Driver:
    """Drives `planned` (in order of time) against the target of `spec`, whose host is at `address`.

    Making one takes a while (the words of all prompts); `run` begins at once.
    """

    def __init__(self, spec: Spec, planned: Sequence[Planned], address: str) -> None:
        self._spec = spec
        self._address = address
        self._tls = tls(spec.target)
        self._planned = planned
        self._began = 0.0
        self._prompts = Prompts(spec.target, spec.seed)
        self._head = _head(spec)
        self._kept = spec.connections is Connections.REUSED
        self._idle: list[Connection] = []
        self._connecting: set[asyncio.Task[None]] = set()
        self._active: set[Exchange] = set()
        self._records: list[Record] = []
        self._outcomes: Counter[Outcome] = Counter()
        self._sent = 0
        self._faults: list[str] = []
        self._stop = asyncio.Event()
        self._empty = asyncio.Event()

    def clock(self) -> float:
        """Seconds since the run's start."""
        return time.monotonic() - self._began

    def progress(self) -> Progress:
        """How far this part is."""
        return Progress(self._sent, len(self._active), self._outcomes.copy())

    def stop(self, now: bool = False) -> None:
        """Send nothing more; with `now`, cancel what is under way too."""
        self._stop.set()
        if now:
            for exchange in list(self._active):
                exchange.cancel(Kind.STOPPED)

    async def run(self, began: float) -> tuple[list[Record], Health]:
        """Send everything, wait for every end, and return one record per request; `began` is on time.monotonic()."""
        self._began = began
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(lambda loop, context: self._faults.append(_told(context)))
        monitor = Monitor(self.clock)
        helpers = [self._loop.create_task(task) for task in (monitor.run(), self._sweep())]
        try:
            sent = await self._send_all()
            for planned in self._planned[sent:]:
                self._unsent(planned)
            while self._active:
                self._empty.clear()
                await self._empty.wait()
        finally:
            health = monitor.health()
            for task in (*helpers, *self._connecting):
                task.cancel()
            for connection in self._idle:
                connection.close()
        if self._faults:
            raise LoadError(f"The client itself failed, so its records cannot be trusted: {self._faults[0]}")
        return self._records, health

    async def _send_all(self) -> int:
        """Send until the schedule ends or the run is stopped; returns how many were sent."""
        for number, planned in enumerate(self._planned):
            body = self._prompts.body(planned.index, planned.arrival)  # made before its moment, not in it
            request = b"%b%d\r\nx-request-id: load-%d-%d\r\n\r\n%b" % (
                self._head,
                len(body),
                self._spec.seed,
                planned.index,
                body,
            )
            if not await self._until(planned.arrival.at):
                return number
            self._send(planned, request)
        return len(self._planned)

    async def _until(self, moment: float) -> bool:
        """Wait for a moment, never less; False when the run is stopped before."""
        await asyncio.sleep(0)  # also when late: answers must be read meanwhile
        while (left := moment - self.clock()) > 0 and not self._stop.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(left, _TIMER_GRAIN)):
                    await self._stop.wait()
        return not self._stop.is_set()

    def _send(self, planned: Planned, request: bytes) -> None:
        spec = self._spec
        exchange = Exchange(planned, spec.bounds, spec.habits.slow_bytes_per_second, self.clock, self._ended)
        self._active.add(exchange)
        self._sent += 1
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable and self.clock() - connection.idle_since < REUSE_SECONDS:
                exchange.begin()
                exchange.send(connection, request, self._loop)
                return
            connection.drop()
        exchange.begin()
        task = self._loop.create_task(self._connect(exchange, request))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, exchange: Exchange, request: bytes) -> None:
        target, secure = self._spec.target, self._tls
        name = target.host if secure else None  # the certificate is for the name, whatever address it has
        try:
            _, connection = await self._loop.create_connection(
                lambda: Connection(self._loop), self._address, target.port, ssl=secure, server_hostname=name
            )
        except OSError as error:
            exchange.answer_failed(Kind.UNREACHABLE, str(error))
            return
        if exchange.over:
            connection.drop()
            return
        exchange.send(connection, request, self._loop)

    def _ended(self, exchange: Exchange, record: Record) -> None:
        self._active.discard(exchange)
        self._records.append(record)
        self._outcomes[record.outcome] += 1
        if exchange.connection is not None:
            self._part(exchange.connection, record)
        if not self._active:
            self._empty.set()

    def _part(self, connection: Connection, record: Record) -> None:
        """Keep, close or break a connection after its answer."""
        if record.outcome not in (Outcome.COMPLETED, Outcome.REFUSED):
            connection.drop()
        elif self._kept and record.outcome is Outcome.COMPLETED and connection.reusable and not record.slow:
            connection.idle_since = self.clock()
            self._idle.append(connection)
        else:
            connection.close()

    def _unsent(self, planned: Planned) -> None:
        exchange = Exchange(planned, self._spec.bounds, 1.0, self.clock, self._ended)
        exchange.cancel(Kind.UNSENT)

    async def _sweep(self) -> None:
        bounds = self._spec.bounds
        pause = min(_SLOWEST_SWEEP, bounds.silence / 4, bounds.request / 4)
        while True:
            await asyncio.sleep(pause)
            now = self.clock()
            for exchange in list(self._active):
                exchange.check(now)


def _told(context: dict[str, Any]) -> str:
    return f"{context.get('message')}: {context.get('exception')!r}"


def _head(spec: Spec) -> bytes:
    """The request's head up to the value of its length."""
    target = spec.target
    host = f"[{target.host}]" if ":" in target.host else target.host
    key = f"authorization: Bearer {target.api_key}\r\n" if target.api_key else ""
    close = "" if spec.connections is Connections.REUSED else "connection: close\r\n"
    return (
        f"POST {target.path} HTTP/1.1\r\nhost: {host}:{target.port}\r\ncontent-type: application/json\r\n"
        f"accept: text/event-stream\r\n{key}{close}content-length: "
    ).encode()

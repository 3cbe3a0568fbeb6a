"""Connections to engines: one `Backend` per pod with its idle connections, one `Upstream` per connection.

A call is a request's bytes and a `Caller` that is told of the answer: its head, its body as it arrives (one call per
read), its end, or that it failed. No task or future per call; a coroutine runs only to open a connection. A reused
connection that breaks before the first byte of the answer was closed by the engine meanwhile: the call is repeated once
on a fresh one, unseen by the caller.
"""

import asyncio
import socket
from time import monotonic
from typing import Protocol, cast

import httptools

from steelyard.gateway.pods import Pod
from steelyard.gateway.wire import MAX_HEAD, SOCKET_BUFFER

CONNECT_TIMEOUT_SECONDS = 2.0
IDLE_SECONDS = 4.0  # engines close idle connections after about 5 s: do not race them
MAX_IDLE = 256
# Without a byte for 15 s the kernel asks; after three questions without an answer, 5 s each, the connection is broken.
KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)


class Caller(Protocol):
    """Who is told of an answer. After `answer_end` or `answer_failed` nothing more is told."""

    def answer_head(self, status: int, content_type: bytes, retry_after: bytes | None) -> None:
        """The head has arrived."""

    def answer_data(self, data: bytes) -> None:
        """A part of the body has arrived."""

    def answer_end(self) -> None:
        """The body is complete."""

    def answer_failed(self, why: str, *, unreachable: bool) -> None:
        """There is no (complete) answer; `unreachable` if the pod did not even take the call."""


class Call:
    """One request to an engine under way. `cancel` ends it at once, and with it the engine's work."""

    __slots__ = ("_backend", "_fresh", "_paused", "caller", "connection", "over", "request")

    def __init__(self, backend: "Backend", request: bytes, caller: Caller) -> None:
        self._backend = backend
        self._fresh = False
        self.over = False  # the caller has been told the end, or has cancelled
        self._paused = False
        self.request = request
        self.caller = caller
        self.connection: Upstream | None = None

    def cancel(self) -> None:
        """Give the call up; the caller hears nothing more."""
        if self._finish() and self.connection is not None:
            self.connection.drop()

    def pause(self, paused: bool) -> None:
        """Stop or resume reading the answer: the client is slower than the engine."""
        self._paused = paused
        if self.connection is not None:
            self.connection.pause(paused)

    def attach(self, connection: "Upstream", *, fresh: bool) -> None:
        """Start on an open connection."""
        if self.over:
            connection.release(keep=True)
            return
        self._fresh = fresh
        self.connection = connection
        connection.start(self)
        if self._paused:
            connection.pause(True)

    def completed(self) -> None:
        """The answer is complete, and the call is not over yet."""
        self.over = True
        self._backend.calls -= 1
        self.caller.answer_end()

    def broken(self, why: str, *, unreachable: bool = False, nothing_received: bool = False) -> None:
        """The connection failed."""
        if self.over:
            return
        self.connection = None
        if nothing_received and not self._fresh and not unreachable:
            self._backend.open(self)
            return
        self._finish()
        self.caller.answer_failed(why, unreachable=unreachable)

    def _finish(self) -> bool:
        if self.over:
            return False
        self.over = True
        self._backend.calls -= 1
        return True


class Backend:
    """One engine pod: its idle connections and how many calls run on it."""

    def __init__(self, pod: Pod, loop: asyncio.AbstractEventLoop) -> None:
        self.pod = pod
        address = f"[{pod.address}]" if ":" in pod.address else pod.address
        self.host = f"{address}:{pod.port}".encode()
        self.calls = 0
        self.dispatched = 0
        self.loop = loop
        self._idle: list[Upstream] = []
        self._opening: set[asyncio.Task[None]] = set()

    def call(self, request: bytes, caller: Caller) -> Call:
        """Send a request. The caller may hear of a failure only after this has returned."""
        self.calls += 1
        call = Call(self, request, caller)
        now = monotonic()
        while self._idle:
            connection = self._idle.pop()
            if connection.usable(now):
                call.attach(connection, fresh=False)
                return call
            connection.close()
        self.open(call)
        return call

    def open(self, call: Call) -> None:
        """Open a connection for a call."""
        task = self.loop.create_task(self._open(call))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(self, call: Call) -> None:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                _, connection = await self.loop.create_connection(
                    lambda: Upstream(self), self.pod.address, self.pod.port
                )
        except (OSError, TimeoutError, ValueError) as error:  # ValueError: an address that nobody can have
            why = (
                f"no connection within {CONNECT_TIMEOUT_SECONDS:g} s" if isinstance(error, TimeoutError) else str(error)
            )
            call.broken(f"engine {self.pod.name} cannot be reached: {why}", unreachable=True)
            return
        call.attach(connection, fresh=True)

    def keep(self, connection: "Upstream") -> None:
        """Take back a connection whose answer is complete."""
        if len(self._idle) >= MAX_IDLE:
            connection.close()
            return
        connection.idle_since = monotonic()
        self._idle.append(connection)

    def forget(self, connection: "Upstream") -> None:
        """An idle connection was closed by the engine."""
        if connection in self._idle:
            self._idle.remove(connection)

    def close_idle(self) -> None:
        """Close the connections nobody uses: the pod has left, or the gateway is about to."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


class Upstream(asyncio.Protocol):
    """One connection to an engine, one call at a time. It is also the target of its own response parser."""

    __slots__ = (
        "_backend",
        "_call",
        "_content_type",
        "_ended",
        "_head_bytes",
        "_head_done",
        "_keep_alive",
        "_parser",
        "_parts",
        "_paused",
        "_received",
        "_retry_after",
        "_status",
        "_surplus",
        "_transport",
        "idle_since",
    )

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._call: Call | None = None
        self._parser = httptools.HttpResponseParser(self)  # serves one answer after the other
        self._paused = False
        self._parts: list[bytes] = []
        self._retry_after: bytes | None = None
        self.idle_since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Cap the kernel's buffers: a stalled client must stall its engine, not fill memory here. And let the kernel ask
        whether the other side is still there: a whole answer is silent until it is complete, and so is a lost node."""
        self._transport = cast(asyncio.Transport, transport)
        raw = transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BUFFER)
        for level, option, value in KEEPALIVE:
            raw.setsockopt(level, option, value)

    def usable(self, now: float) -> bool:
        """Whether this idle connection can take a call without racing the engine's own time-out."""
        return not self._transport.is_closing() and now - self.idle_since < IDLE_SECONDS

    def start(self, call: Call) -> None:
        """Send a call's request and wait for its answer."""
        self._call = call
        self._ended = self._head_done = self._keep_alive = self._received = self._surplus = False
        self._head_bytes = 0
        self._content_type = b""
        self._retry_after = None
        self._parts = []
        self._transport.write(call.request)

    def pause(self, paused: bool) -> None:
        """Stop or resume reading."""
        if paused is self._paused or self._transport.is_closing():
            return
        self._paused = paused
        if paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def drop(self) -> None:
        """Abort: the engine sees the connection break and stops its work."""
        self._call = None
        self._transport.abort()

    def close(self) -> None:
        """Close an idle connection."""
        self._transport.close()

    def release(self, *, keep: bool) -> None:
        """End a call's use of this connection."""
        self._call = None
        if self._paused:
            self.pause(False)
        if keep and not self._transport.is_closing():
            self._backend.keep(self)
        else:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        """Feed one read through the parser and tell the caller what it held."""
        call = self._call
        if call is None:  # bytes outside an answer: nothing good can follow
            self._transport.abort()
            return
        self._received = True
        head_was_done = self._head_done
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.drop()
            why = "another protocol" if isinstance(error, httptools.HttpParserUpgrade) else f"broken HTTP: {error}"
            call.broken(f"engine {self._backend.pod.name} answered with {why}")
            return
        if self._surplus:  # where its answer ends is not known: neither it nor what follows can be trusted
            self.drop()
            call.broken(f"engine {self._backend.pod.name} answered with more than its answer")
            return
        if not self._head_done:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD:
                self.drop()
                call.broken(f"engine {self._backend.pod.name} answered with a head of more than {MAX_HEAD} bytes")
            return
        if not head_was_done:
            call.request = b""  # it cannot be sent again any more
            call.caller.answer_head(self._status, self._content_type, self._retry_after)
        if self._parts and not call.over:
            parts, self._parts = self._parts, []
            call.caller.answer_data(parts[0] if len(parts) == 1 else b"".join(parts))
        if self._ended and not call.over:
            self.release(keep=self._keep_alive)
            call.completed()

    def connection_lost(self, exc: Exception | None) -> None:
        """The engine closed an idle connection, or failed. An answer that only closing would end is a failure too: it
        could not be told from one that was cut short."""
        call, self._call = self._call, None
        if call is None:
            self._backend.forget(self)
            return
        call.broken(
            f"engine {self._backend.pod.name} closed the connection before its answer was complete",
            nothing_received=not self._received,
        )

    # What the parser finds. These only note facts: an exception here would look like broken HTTP.

    def on_message_begin(self) -> None:
        """Note bytes beyond the answer's end."""
        self._surplus = self._ended

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note the few fields that are passed on."""
        lower = name.lower()
        if lower == b"content-type":
            self._content_type = value
        elif lower == b"retry-after":
            self._retry_after = value

    def on_headers_complete(self) -> None:
        """Note that the head is complete, unless it only announces another (1xx)."""
        self._status = self._parser.get_status_code()
        self._head_done = not 100 <= self._status < 200

    def on_body(self, body: bytes) -> None:
        """Note a part of the body."""
        self._parts.append(body)

    def on_message_complete(self) -> None:
        """Note the end, and whether the connection can be used again (valid only inside this callback)."""
        if not self._head_done:
            self._content_type, self._retry_after = b"", None
            return
        self._ended = True
        self._keep_alive = self._parser.should_keep_alive()

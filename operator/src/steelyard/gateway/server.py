"""The client's side of HTTP: one `Client` per connection, requests in, responses out, one at a time.

Requests are read whole (they are small) under limits of size and time; what follows on a connection while one is being
answered is read ahead up to a bound. A client that closes, even only its sending side, is gone: its request is given up.
Deadlines are looked at by a sweep over all connections, not by timers of their own.
"""

import asyncio
import re
import socket
from collections import deque
from typing import Protocol, cast

import httptools

from steelyard.gateway.connections import Connections
from steelyard.gateway.errors import ClientError
from steelyard.gateway.holding import Holding
from steelyard.gateway.request import NOTED, Request
from steelyard.gateway.wire import (
    CONTINUE,
    HEAD_SECONDS,
    IDLE_SECONDS,
    LAST_CHUNK,
    MAX_HEAD,
    MAX_PIPELINED,
    SOCKET_BUFFER,
    WRITE_HIGH_WATER,
    chunk,
    error_response,
    stream_head,
)

BODY_SECONDS = 60.0  # from there to the end of its body
LINGER_SECONDS = 2.0  # of reading on after a refusal
FLUSH_SECONDS = 30.0  # that a closing connection's client may go without reading anything of what is left for it

# Some clients (Java's, by default) offer HTTP/2 with every request. A server may ignore that; the parser would take the
# body for the other protocol's bytes instead.
_OFFER = re.compile(rb"(?<=\r\n)upgrade:[ \t]*h2c[ \t]*\r\n", re.IGNORECASE)


class Answering(Protocol):
    """Who answers the current request and must hear about its client."""

    def client_gone(self) -> None:
        """The client has closed."""

    def client_paused(self, paused: bool) -> None:
        """The client reads more slowly than we write, or keeps up again."""


class Service(Protocol):
    """What serves the requests."""

    draining: bool
    connections: "Connections[Client]"
    holding: Holding
    body_limit: int  # bytes

    def serve(self, client: "Client", request: Request) -> Answering | None:
        """Answer a request now (None) or later."""

    def refused_early(self, error: ClientError) -> None:
        """Hear of a request that was refused before it was whole."""

    def now(self) -> float:
        """Return seconds on the loop's clock."""


class Client(asyncio.Protocol):
    """One client connection; also the target of its own request parser."""

    __slots__ = (
        "_answering",
        "_bare_reads",
        "_deadline",
        "_head_done",
        "_keep",
        "_lingering",
        "_parser",
        "_pending",
        "_reading_paused",
        "_refused",
        "_resting",
        "_rx",
        "_service",
        "_serving",
        "_transport",
        "_unsent",
        "closed",
        "paused_since",
        "request",
    )

    def __init__(self, service: Service) -> None:
        self._service = service
        self._resting = service.connections.resting
        self._parser = httptools.HttpRequestParser(self)
        self._pending: deque[Request] = deque()
        self._answering: Answering | None = None
        self._rx: Request | None = None
        self._refused: ClientError | None = None
        self._head_done = False
        self._bare_reads = 0  # bytes of reads that held nothing but a part of a head or trailer, which the parser keeps
        self._unsent = 0  # bytes left for the client when the connection was closed
        self._keep = True
        self._serving = self._lingering = self._reading_paused = False
        self.request: Request | None = None  # being answered
        self.closed = False
        self.paused_since: float | None = None

    # --- the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a connection; cap its buffers, so that a stalled client stalls its engine and fills no memory."""
        self._transport = cast(asyncio.Transport, transport)
        if not self._service.connections.admit(self):
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(WRITE_HIGH_WATER)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER)
        self._deadline = self._service.now() + HEAD_SECONDS

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self.closed = True
        self._service.connections.remove(self)
        arriving = [*self._pending, *([self._rx] if self._rx is not None and self._head_done else [])]
        self._service.holding.arriving -= sum(request.size for request in arriving)
        self._pending.clear()
        self._rx = None
        answering, self._answering = self._answering, None
        if answering is not None:
            answering.client_gone()

    def pause_writing(self) -> None:
        """The client does not keep up."""
        self.paused_since = self._service.now()
        if self._answering is not None:
            self._answering.client_paused(True)

    def resume_writing(self) -> None:
        """The client keeps up again."""
        self.paused_since = None
        if self._answering is not None:
            self._answering.client_paused(False)
        self._next()

    def sweep(self, now: float) -> None:
        """Close what has been idle or half-sent for too long."""
        if self.request is not None or self.closed or now < self._deadline:
            return
        if self._lingering:
            self.abort()
        elif self._transport.is_closing():
            left = self._transport.get_write_buffer_size()
            if left >= self._unsent:
                self.abort()
            self._unsent, self._deadline = left, now + FLUSH_SECONDS
        elif self._rx is not None:
            self._refuse(ClientError(408, "the request did not arrive in time"))
        else:
            self._close()

    def close_if_idle(self) -> None:
        """Close unless a request is being answered or read."""
        if self.request is None and self._rx is None and not self._lingering:
            self._close()

    def abort(self) -> None:
        """Break the connection off."""
        self._transport.abort()

    def flushing(self) -> bool:
        """Return whether something written is still on its way."""
        return self._transport.get_write_buffer_size() > 0

    # --- reading requests

    def data_received(self, data: bytes) -> None:
        """Feed one read through the parser, then serve what it held."""
        if self._lingering or self._refused is not None:
            return
        if self._rx is None and data.find(b"h2c", 0, data.find(b"\r\n\r\n")) >= 0:  # a long body is not searched
            data = _OFFER.sub(b"", data)
        rx, head_was_done = self._rx, self._head_done
        size = rx.size if rx is not None else 0
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._refused = self._refused or ClientError(400, "the request is not valid HTTP/1.1")
        if rx is not None and self._rx is rx and (not self._head_done or (head_was_done and rx.size == size)):
            self._bare_reads += len(data)
            if self._bare_reads > MAX_HEAD:
                self._head_too_large()
        else:
            self._bare_reads = 0
        if self._rx is not None and self in self._resting:  # it is sending: others have been at rest for longer
            self._resting[self] = self._resting.pop(self)
        if len(self._pending) >= MAX_PIPELINED and not self._reading_paused:
            self._reading_paused = True
            self._transport.pause_reading()
        self._next()

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._rx = Request()
        self._head_done = False
        self._deadline = self._service.now() + HEAD_SECONDS

    def on_url(self, url: bytes) -> None:
        """Note (a part of) the target."""
        rx = self._rx
        if rx is not None:
            rx.target += url
            rx.size += len(url)
            if rx.size > MAX_HEAD:
                self._head_too_large()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note the few fields that matter here."""
        rx = self._rx
        if rx is None or self._head_done:  # nothing in a trailer may count as if it had been in the head
            return
        rx.size += len(name) + len(value)
        if rx.size > MAX_HEAD:
            self._head_too_large()
        lower = name.lower()
        note = NOTED.get(lower)
        if note is not None:
            note(rx, lower, value)

    def on_headers_complete(self) -> None:
        """Refuse at once what will be too large; tell a client that asks first to go on."""
        rx = self._rx
        if rx is None:
            return
        self._head_done = True
        rx.size = 0
        self._deadline = self._service.now() + BODY_SECONDS
        if rx.length is not None and rx.length > self._service.body_limit:
            self._body_too_large()
        elif rx.expect and self.request is None and not self._pending and self._refused is None:
            self._transport.write(CONTINUE)

    def on_body(self, body: bytes) -> None:
        """Collect the body, within its limit."""
        rx = self._rx
        if rx is None or self._refused is not None:
            return
        rx.size += len(body)
        holding = self._service.holding
        holding.arriving += len(body)
        if rx.size > self._service.body_limit:
            self._body_too_large()
        else:
            try:
                holding.check_arriving(rx.size)
            except ClientError as error:
                self._refused = error
        if self._refused is None:
            rx.parts.append(body)
        else:
            rx.parts.clear()

    def on_message_complete(self) -> None:
        """A request is complete (`should_keep_alive` is valid only inside this callback)."""
        rx, self._rx = self._rx, None
        if rx is None:
            return
        if self._refused is not None:
            self._service.holding.arriving -= rx.size
            return
        if self._parser.should_upgrade():  # the parser stops here and leaves the body unread
            self._service.holding.arriving -= rx.size
            self._refused = ClientError(400, "only HTTP/1.1 is spoken here: leave out Upgrade and CONNECT")
            return
        rx.method = self._parser.get_method()
        # A response to HEAD ends at its head; ours, an error, has a body: nothing may follow it on this connection.
        rx.keep_alive = self._parser.should_keep_alive() and rx.method != b"HEAD"
        rx.http11 = self._parser.get_http_version() == "1.1"
        rx.path = rx.target.partition(b"?")[0] if b"?" in rx.target else rx.target
        rx.body = rx.parts[0] if len(rx.parts) == 1 else b"".join(rx.parts)
        rx.parts.clear()
        self._pending.append(rx)
        if len(self._pending) > MAX_PIPELINED * 8:
            self._refused = ClientError(400, "too many requests were sent ahead on one connection")

    def _head_too_large(self) -> None:
        self._refused = self._refused or ClientError(431, f"the request's head is larger than {MAX_HEAD} bytes")

    def _body_too_large(self) -> None:
        limit = self._service.body_limit
        self._refused = self._refused or ClientError(413, f"the request's body is larger than {limit} bytes")

    # --- answering

    def respond(self, response: bytes) -> None:
        """Send a whole response to the current request; it was built with `keep_alive`."""
        self._transport.write(response)
        self._end()

    def keep_alive(self) -> bool:
        """Decide whether the connection outlives the current response; call it when building the head."""
        self._keep = bool(self.request is not None and self.request.keep_alive and not self._service.draining)
        return self._keep

    def fail(self, error: ClientError, extra: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        """Answer the current request with an error."""
        self.respond(error_response(error, keep_alive=self.keep_alive(), extra=extra))

    def start_stream(self, content_type: bytes, extra: tuple[tuple[bytes, bytes], ...]) -> None:
        """Send the head of a streamed response: chunked, or ended by closing for HTTP/1.0."""
        http11 = self.request is not None and self.request.http11
        keep = self.keep_alive() and http11
        self._keep = keep
        self._transport.write(
            stream_head(status=200, content_type=content_type, keep_alive=keep, chunked=http11, extra=extra)
        )

    def send(self, data: bytes) -> None:
        """Send a part of a streamed response; one call, one write."""
        http11 = self.request is not None and self.request.http11
        self._transport.write(chunk(data) if http11 else data)

    def end_stream(self, *, close: bool = False) -> None:
        """End a streamed response, and the connection too if asked to."""
        if self.request is not None and self.request.http11:
            self._transport.write(LAST_CHUNK)
        self._keep = self._keep and not close
        self._end()

    def _end(self) -> None:
        self.request = self._answering = None
        if not self._keep:
            self._close()
            return
        self._deadline = self._service.now() + IDLE_SECONDS
        self._resting[self] = None
        if self._reading_paused and len(self._pending) < MAX_PIPELINED:
            self._reading_paused = False
            self._transport.resume_reading()
        self._next()

    def _next(self) -> None:
        """Serve waiting requests; each may be answered inside `serve`, hence a loop and not recursion."""
        if self._serving:
            return
        self._serving = True
        try:
            # A client that does not read its answers gets no more of them: they would fill memory.
            while (
                self._pending
                and self.request is None
                and self.paused_since is None
                and not self._transport.is_closing()
            ):
                request = self.request = self._pending.popleft()
                self._service.holding.arriving -= request.size
                self._resting.pop(self, None)
                answering = self._service.serve(self, request)
                if self.request is request:
                    self._answering = answering
        finally:
            self._serving = False
        over = self.request is None and not self._pending and not self._lingering
        if self._refused is not None and over and not self._transport.is_closing():
            self._refuse(self._refused)

    def _refuse(self, error: ClientError) -> None:
        """Answer with an error and end the connection, reading on for a moment: closing with unread bytes would
        destroy the answer on its way."""
        self._service.refused_early(error)
        self._lingering = True
        self._deadline = self._service.now() + LINGER_SECONDS
        self._transport.write(error_response(error, keep_alive=False))
        self._transport.write_eof()

    def _close(self) -> None:
        """Close once everything written has been read, or its client has stopped reading (see `sweep`)."""
        if not self._transport.is_closing():
            self._unsent = self._transport.get_write_buffer_size()
            self._deadline = self._service.now() + FLUSH_SECONDS
        self._transport.close()

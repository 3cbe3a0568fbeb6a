"""HTTP/1.1 connections to the server: protocols and a parser, no task per request but the one that connects."""

from __future__ import annotations

import asyncio
import socket
from typing import Protocol, cast

import httptools

from e2e.load.records import Kind

REUSE_SECONDS = 1.0  # servers close idle connections after about 5 s: do not race them
_SLOW_BUFFER = 4096  # the kernel's, for slow readers: what they do not read must be felt by the server


class Caller(Protocol):
    """Who is told of an answer. After `answer_end` or `answer_failed` nothing more is told."""

    slow: float | None  # bytes per second that it reads, None: as fast as they come

    def answer_head(self, status: int) -> None:
        """The head has arrived."""

    def answer_data(self, data: bytes) -> None:
        """A part of the body has arrived; called once per read."""

    def answer_end(self) -> None:
        """The body is complete."""

    def answer_failed(self, kind: Kind, detail: str) -> None:
        """There is no (complete) answer."""


class Connection(asyncio.Protocol):
    """One connection, one request at a time; the target of its own response parser."""

    __slots__ = (
        "_caller",
        "_ended",
        "_head_done",
        "_keep",
        "_loop",
        "_parser",
        "_parts",
        "_received",
        "_resume",
        "_status",
        "_surplus",
        "_transport",
        "idle_since",
        "paused",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._caller: Caller | None = None
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self._resume: asyncio.TimerHandle | None = None
        self.idle_since = 0.0
        self.paused = False

    @property
    def reusable(self) -> bool:
        """Whether another request can be sent after the answer that has ended."""
        return self._keep and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def start(self, caller: Caller, request: bytes) -> None:
        """Send a request; `caller` is told of its answer."""
        self._caller = caller
        self._head_done = self._ended = self._received = self._surplus = self._keep = False
        self._parts: list[bytes] = []
        if caller.slow is not None:
            raw = self._transport.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SLOW_BUFFER)
        self._transport.write(request)

    def close(self) -> None:
        """Close in good order."""
        self._transport.close()

    def drop(self) -> None:
        """Break the connection at once; nothing more is told."""
        self._caller = None
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Feed one read through the parser and tell the caller what it held."""
        caller = self._caller
        if caller is None or self._parser is None:
            self._transport.abort()
            return
        self._received = True
        head_was_done = self._head_done
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            after = self._ended
            self.drop()
            if after:
                caller.answer_failed(Kind.DUPLICATED, "bytes after the answer's end")
            else:
                caller.answer_failed(Kind.BROKEN_HTTP, str(error))
            return
        if self._surplus:
            self.drop()
            caller.answer_failed(Kind.DUPLICATED, "a second answer after the first")
            return
        if self._head_done and not head_was_done:
            caller.answer_head(self._status)
        if self._parts and self._caller is not None:
            parts, self._parts = self._parts, []
            caller.answer_data(parts[0] if len(parts) == 1 else b"".join(parts))
        if self._ended and self._caller is not None:
            self._caller = None
            caller.answer_end()
        elif self._caller is not None and caller.slow is not None:
            self._rest(len(data) / caller.slow)

    def _rest(self, seconds: float) -> None:
        """Read nothing for as long as a slow client takes for what it has just read."""
        self._transport.pause_reading()
        self.paused = True
        self._resume = self._loop.call_later(seconds, self._read_on)

    def _read_on(self) -> None:
        self.paused = False
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """The other side closed, or the network broke; an answer that only closing ends is cut: one cannot tell."""
        caller, self._caller = self._caller, None
        self._parser = None  # it refers to this object: no work for the cycle collector
        if self._resume is not None:
            self._resume.cancel()
        if caller is not None:
            kind = Kind.CUT if self._received else Kind.NO_ANSWER
            caller.answer_failed(kind, str(exc) if exc else "the server closed the connection")

    # What the parser finds. These only note facts: an exception here would look like broken HTTP.

    def on_message_begin(self) -> None:
        """Note a second answer."""
        self._surplus = self._ended

    def on_headers_complete(self) -> None:
        """Note that the head is complete, unless it only announces another (1xx)."""
        assert self._parser is not None
        self._status = self._parser.get_status_code()
        self._head_done = not 100 <= self._status < 200

    def on_body(self, body: bytes) -> None:
        """Note a part of the body."""
        self._parts.append(body)

    def on_message_complete(self) -> None:
        """Note the end, and whether the connection can be used again (valid only inside this callback)."""
        if self._head_done:
            assert self._parser is not None
            self._ended, self._keep = True, self._parser.should_keep_alive()

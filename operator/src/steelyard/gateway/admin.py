"""The metrics port: /metrics, /ready, /live, /demand. It has a listener and connections of its own, so that probes and
scrapes are answered however full the service is."""

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import cast

import httptools
import msgspec
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import CollectorRegistry

from steelyard.gateway.connections import Connections
from steelyard.gateway.errors import ClientError
from steelyard.gateway.wire import (
    HEAD_SECONDS,
    IDLE_SECONDS,
    MAX_HEAD,
    MAX_PIPELINED,
    error_response,
    full_response,
)

MOST_CONNECTIONS = 100  # probes, scrapes, the operator, people: all come again where theirs has made room

TEXT = b"text/plain; version=0.0.4; charset=utf-8"

Page = Callable[[], tuple[int, bytes, bytes]]  # -> (status, content type, body)


def metrics_page(registry: CollectorRegistry) -> Page:
    """Serve a registry in Prometheus' text format."""
    return lambda: (200, TEXT, generate_latest(registry))


def ready_page(why_not: Callable[[], str | None]) -> Page:
    """Serve 200 while requests can be served, else 503 with the reason."""

    def page() -> tuple[int, bytes, bytes]:
        reason = why_not()
        return (503 if reason else 200), b"text/plain", (reason or "ready").encode() + b"\n"

    return page


def live_page() -> tuple[int, bytes, bytes]:
    """Serve 200: the loop that carries all traffic turns."""
    return 200, b"text/plain", b"alive\n"


def demand_page(complete: Callable[[], tuple[float, list[float]]], window_seconds: float) -> Page:
    """Serve the uncached prompt tokens that arrived in each window."""

    def page() -> tuple[int, bytes, bytes]:
        end, tokens = complete()
        body = {"windowSeconds": window_seconds, "end": end, "uncachedTokens": [round(n, 1) for n in tokens]}
        return 200, b"application/json", msgspec.json.encode(body)

    return page


class AdminConnection(asyncio.Protocol):
    """One connection to the metrics port; GET only, bodies ignored. It may rest for a while, and sends little ahead."""

    def __init__(self, pages: dict[bytes, Page], connections: "Connections[AdminConnection]") -> None:
        self._pages = pages
        self._connections = connections
        self._parser = httptools.HttpRequestParser(self)
        self._target = b""
        self._unanswered = 0  # bytes read of a request that is not whole
        self._asked: list[tuple[bytes, bytes, bool]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection."""
        self._transport = cast(asyncio.Transport, transport)
        self._deadline = monotonic() + HEAD_SECONDS
        if not self._connections.admit(self):
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """The other side is gone."""
        self._connections.remove(self)

    def pause_writing(self) -> None:
        """It does not read: answer no more of it."""
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """It reads again."""
        self._transport.resume_reading()

    def flushing(self) -> bool:
        """Return whether something written is still on its way."""
        return self._transport.get_write_buffer_size() > 0

    def sweep(self, now: float) -> None:
        """Break off what has been idle, half-sent or unread for too long."""
        if now >= self._deadline:
            self.abort()

    def abort(self) -> None:
        """Break off at once."""
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Answer every request that became complete."""
        if self._transport.is_closing():
            return
        self._unanswered += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._refuse(ClientError(400, "not valid HTTP/1.1"))
            return
        asked, self._asked = self._asked, []
        if len(asked) > MAX_PIPELINED:
            self._refuse(ClientError(400, "too many requests were sent ahead"))
            return
        for method, path, keep in asked:
            self._transport.write(self._answer(method, path, keep))
            if not keep:
                self._transport.close()
                return
        if asked:
            self._unanswered = 0
            self._deadline = monotonic() + IDLE_SECONDS
            self._connections.resting[self] = self._connections.resting.pop(self)  # the latest to have been of use
        elif self._unanswered > MAX_HEAD:
            self._refuse(ClientError(431, f"the request is larger than {MAX_HEAD} bytes"))
        else:
            self._deadline = min(self._deadline, monotonic() + HEAD_SECONDS)

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._target = b""

    def on_url(self, url: bytes) -> None:
        """Note (a part of) the target."""
        self._target = (self._target + url)[:1024]

    def on_message_complete(self) -> None:
        """Note a complete request."""
        self._asked.append(
            (self._parser.get_method(), self._target.partition(b"?")[0], self._parser.should_keep_alive())
        )

    def _refuse(self, error: ClientError) -> None:
        self._transport.write(error_response(error, keep_alive=False))
        self._transport.close()

    def _answer(self, method: bytes, path: bytes, keep: bool) -> bytes:
        page = self._pages.get(path)
        if page is None:
            return error_response(ClientError(404, "no such page"), keep_alive=keep)
        if method != b"GET":
            return error_response(ClientError(405, "GET only"), keep_alive=keep)
        status, content_type, body = page()
        return full_response(status, body, content_type=content_type, keep_alive=keep)

"""The metrics port: /metrics, /ready, /live, /demand. It has a listener and connections of its own, so that probes and
scrapes are answered however full the service is."""

import asyncio
from collections.abc import Callable
from typing import cast

import httptools
import msgspec
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import CollectorRegistry

from steelyard.gateway.errors import ClientError
from steelyard.gateway.wire import error_response, full_response

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
    """One connection to the metrics port; GET only, bodies ignored."""

    def __init__(self, pages: dict[bytes, Page]) -> None:
        self._pages = pages
        self._parser = httptools.HttpRequestParser(self)
        self._target = b""
        self._asked: list[tuple[bytes, bytes, bool]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Answer every request that became complete."""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._transport.write(error_response(ClientError(400, "not valid HTTP/1.1"), keep_alive=False))
            self._transport.close()
            return
        asked, self._asked = self._asked, []
        for method, path, keep in asked:
            self._transport.write(self._answer(method, path, keep))
            if not keep:
                self._transport.close()
                return

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

    def _answer(self, method: bytes, path: bytes, keep: bool) -> bytes:
        page = self._pages.get(path)
        if page is None:
            return error_response(ClientError(404, "no such page"), keep_alive=keep)
        if method != b"GET":
            return error_response(ClientError(405, "GET only"), keep_alive=keep)
        status, content_type, body = page()
        return full_response(status, body, content_type=content_type, keep_alive=keep)

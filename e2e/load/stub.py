"""`python -m e2e.load.stub TOKENS GAP_SECONDS`: a server that costs next to nothing, for measuring the client alone.

It listens on a free port of loopback, prints the port, and answers every request with the same stream of TOKENS events, one each
GAP_SECONDS, each in a write of its own as an engine sends them. It ends with its standard input: no stub outlives who started it.
"""

from __future__ import annotations

import asyncio
import re
import sys
from typing import cast

import uvloop

_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_BACKLOG = 4096


def _chunk(event: bytes) -> bytes:
    data = b"data: " + event + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(data), data)


_TOKEN = _chunk(b'{"choices":[{"index":0,"text":" word","finish_reason":null}]}')
_END = _chunk(b'{"choices":[{"index":0,"text":" word","finish_reason":"length"}]}') + _chunk(b"[DONE]") + b"0\r\n\r\n"


class Stub(asyncio.Protocol):
    """One connection; one request at a time."""

    __slots__ = ("_gap", "_left", "_loop", "_received", "_timer", "_tokens", "_transport")

    def __init__(self, loop: asyncio.AbstractEventLoop, tokens: int, gap: float) -> None:
        self._loop, self._tokens, self._gap = loop, tokens, gap
        self._received = b""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Begin the answer once the request is whole."""
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if found and length is not None and len(body) >= int(length[1]):
            self._received = b""
            self._left = self._tokens
            self._transport.write(_HEAD)
            self._next()

    def _next(self) -> None:
        self._left -= 1
        if not self._left:
            self._transport.write(_END)
            return
        self._transport.write(_TOKEN)
        self._timer = self._loop.call_later(self._gap, self._next)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has left."""
        if self._timer is not None:
            self._timer.cancel()


async def serve(tokens: int, gap: float) -> None:
    """Serve until standard input ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Stub(loop, tokens, gap), "127.0.0.1", 0, backlog=_BACKLOG)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), float(sys.argv[2])))

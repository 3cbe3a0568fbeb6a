"""A server that answers each request as its script says: well, badly, twice or never."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass

from e2e.load.records import Kind, Outcome

NUMBER = re.compile(rb"x-request-id: load-\d+-(\d+)\r\n")
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
LAST = HEAD.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")  # a server that closes in good order says so


def event(text: str = "", finish: str | None = None, answer: str = "a", **more: object) -> bytes:
    choice = {"index": 0, "text": text, "finish_reason": finish}
    return b"data: " + json.dumps({"id": answer, "choices": [choice], **more}).encode() + b"\n\n"


def usage(tokens: int, answer: str = "a") -> bytes:
    counts = {"prompt_tokens": 5, "completion_tokens": tokens}
    return b"data: " + json.dumps({"id": answer, "choices": [], "usage": counts}).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def stream(*events: bytes, end: bytes = END, head: bytes = HEAD) -> bytes:
    return head + b"".join(chunk(one) for one in events) + end


def whole(status: int, body: bytes = b'{"error": {"message": "no"}}') -> bytes:
    return b"HTTP/1.1 %d Said\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)


def events(number: int) -> list[bytes]:
    name = f"answer-{number}"
    return [*[event(" w", answer=name)] * 3, event(finish="length", answer=name), usage(3, name), DONE]


def good(number: int) -> bytes:
    return stream(*events(number))


@dataclass(frozen=True)
class Deed:
    """What the server does, and what the client must make of it when three tokens were asked for."""

    answer: Callable[[int], bytes]
    outcome: Outcome
    kind: str | None = None
    then: str = "close"  # close | reset | wait | trickle


W = event(" w")
F = event(finish="length")
DEEDS: Mapping[str, Deed] = {
    "good": Deed(lambda number: stream(*events(number), head=LAST), Outcome.COMPLETED),
    "good, then open": Deed(good, Outcome.COMPLETED, then="wait"),
    "no text, one token": Deed(
        lambda number: stream(event(finish="stop"), usage(1), DONE, head=LAST), Outcome.COMPLETED
    ),
    "no usage": Deed(lambda number: stream(W, DONE, head=LAST), Outcome.COMPLETED),
    "bad request": Deed(lambda number: whole(400), Outcome.REFUSED, "status_400"),
    "too many": Deed(lambda number: whole(429), Outcome.REFUSED, "status_429"),
    "unavailable": Deed(lambda number: whole(503), Outcome.REFUSED, "status_503"),
    "error": Deed(lambda number: whole(500), Outcome.FAILED, "status_500"),
    "bad gateway": Deed(lambda number: whole(502), Outcome.FAILED, "status_502"),
    "closes": Deed(lambda number: b"", Outcome.FAILED, Kind.NO_ANSWER),
    "resets": Deed(lambda number: b"", Outcome.FAILED, Kind.NO_ANSWER, then="reset"),
    "cut in the head": Deed(lambda number: HEAD[:20], Outcome.FAILED, Kind.CUT),
    "cut in the stream": Deed(lambda number: stream(W, end=b""), Outcome.FAILED, Kind.CUT),
    "cut after [DONE]": Deed(lambda number: stream(W, F, DONE, end=b""), Outcome.FAILED, Kind.CUT),
    "ends without [DONE]": Deed(lambda number: stream(W, F), Outcome.FAILED, Kind.CUT),
    "error event": Deed(
        lambda number: stream(W, b'data: {"error": {"message": "lost"}}\n\n'), Outcome.FAILED, Kind.ERROR_EVENT
    ),
    "not HTTP": Deed(lambda number: b"220 mail ready\r\n\r\n", Outcome.FAILED, Kind.BROKEN_HTTP),
    "not a stream": Deed(lambda number: whole(200, b'{"choices": []}'), Outcome.FAILED, Kind.NOT_A_STREAM),
    "not JSON": Deed(lambda number: stream(W, b"data: {\n\n"), Outcome.FAILED, Kind.NOT_A_STREAM),
    "two ends": Deed(lambda number: stream(W, F, DONE, DONE), Outcome.FAILED, Kind.DUPLICATED),
    "two finishes": Deed(lambda number: stream(W, F, F, DONE), Outcome.FAILED, Kind.DUPLICATED),
    "text after the finish": Deed(lambda number: stream(W, F, W, DONE), Outcome.FAILED, Kind.DUPLICATED),
    "two ids": Deed(lambda number: stream(W, event(" w", answer="b"), DONE), Outcome.FAILED, Kind.DUPLICATED),
    "too many tokens": Deed(lambda number: stream(W, W, W, W, DONE), Outcome.FAILED, Kind.DUPLICATED),
    "too many by usage": Deed(lambda number: stream(W, F, usage(4), DONE), Outcome.FAILED, Kind.DUPLICATED),
    "two answers": Deed(lambda number: good(number) + good(number), Outcome.FAILED, Kind.DUPLICATED),
    "never answers": Deed(lambda number: b"", Outcome.HUNG, then="wait"),
    "stops in the stream": Deed(lambda number: stream(W, end=b""), Outcome.HUNG, then="wait"),
    "only comments": Deed(lambda number: stream(end=b""), Outcome.TIMED_OUT, then="trickle"),
}


class Server:
    """Serves by script: request `n` gets `script[n]`, in pieces of `piece` bytes (0: whole)."""

    def __init__(self, script: Sequence[str], piece: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self._script = script
        self._piece = piece
        self._tls = tls
        self._handlers: set[asyncio.Task[None]] = set()
        self.accepted = 0  # connections
        self.asked: list[int] = []  # numbers of the requests, as they came

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """The URL of the server while it runs."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._tls)
        try:
            yield f"{'https' if self._tls else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()
            for handler in list(self._handlers):
                handler.cancel()
            await asyncio.gather(*self._handlers, return_exceptions=True)

    async def deserted(self) -> None:
        """Return when every connection is closed."""
        while self._handlers:
            await asyncio.sleep(0.01)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._handlers.add(task)
        self.accepted += 1
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client left
        finally:
            self._handlers.discard(task)
            writer.transport.abort() if writer.transport.is_closing() else writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head)
            number = NUMBER.search(head)
            assert length is not None
            assert number is not None
            await reader.readexactly(int(length[1]))
            self.asked.append(int(number[1]))
            deed = DEEDS[self._script[int(number[1])]]
            await self._answer(deed, int(number[1]), writer)
            if deed.then == "reset":
                writer.transport.abort()
                return
            if deed.then == "close":
                return
            while not reader.at_eof():
                if deed.then == "trickle":
                    writer.write(chunk(b": waiting\n\n"))
                elif deed.outcome is Outcome.COMPLETED:
                    break
                await writer.drain()  # raises when the client has broken the connection
                await asyncio.sleep(0.01)

    async def _answer(self, deed: Deed, number: int, writer: asyncio.StreamWriter) -> None:
        data = deed.answer(number)
        step = self._piece or len(data) or 1
        for start in range(0, len(data), step):
            writer.write(data[start : start + step])
            await writer.drain()
            if self._piece:
                await asyncio.sleep(0)

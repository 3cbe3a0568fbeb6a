"""A fake engine with scripted misbehaviour, for a gateway to meet."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

KV = {
    "do_remote_prefill": True,
    "do_remote_decode": False,
    "remote_engine_id": "e0",
    "remote_request_id": "cap-1",
    "remote_block_ids": [[1, 2, 3]],
    "remote_host": "127.0.0.1",
    "remote_port": 5600,
    "remote_num_tokens": 7,
    "tp_size": 1,
}


@dataclass(frozen=True)
class Behaviour:
    """How the fake engine answers one call."""

    status: int = 200
    delay: float = 0.0  # before the head
    tokens: int = 4
    interval: float = 0.0  # between events of a stream
    die_after: int | None = None  # events after which the connection breaks
    silent: bool = False  # take the call and never answer
    kv: dict[str, Any] | None = field(default_factory=lambda: KV)
    usage: str = "final"  # final | every | none | partial: how a stream reports it
    prompt_tokens: int = 7
    cached_tokens: int = 0
    split: int | None = None  # bytes per write, to cut events anywhere
    done: bool = True  # whether the stream ends with [DONE]
    newline: str = "\n"
    error_event: bool = False
    padding: int = 0  # characters added to each token of a stream


@dataclass
class Seen:
    """One call as the engine saw it."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    raw: bytes
    cancelled: bool = False
    finished: bool = False


class FakeEngine:
    """Speaks the engine's HTTP on loopback, in a thread of its own."""

    def __init__(self, behave: Behaviour | Callable[["FakeEngine", Seen], Behaviour] = Behaviour()) -> None:
        self.behave = behave
        self.seen: list[Seen] = []
        self.connections = 0
        self.health = 200
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.port = 0
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self.up()

    def up(self) -> None:
        """Listen (again, on the same port)."""

        async def listen() -> None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]

        asyncio.run_coroutine_threadsafe(listen(), self._loop).result(5)

    def down(self) -> None:
        """Die: stop listening and break all connections."""

        async def fall() -> None:
            if self._server is not None:
                self._server.close()
            for writer in list(self._writers):
                writer.transport.abort()

        asyncio.run_coroutine_threadsafe(fall(), self._loop).result(5)

    def calls(self) -> list[Seen]:
        return [s for s in self.seen if s.path.startswith("/v1/")]

    def released(self) -> list[str]:
        """The KV it was told to free."""
        return [s.path.removeprefix("/kv/") for s in self.seen if s.path.startswith("/kv/")]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:] if line)}
                raw = await reader.readexactly(int(headers.get("content-length", 0)))
                seen = Seen(head[0].split()[1], headers, json.loads(raw) if raw else {}, raw)
                self.seen.append(seen)
                if seen.path == "/health":
                    writer.write(b"HTTP/1.1 %d x\r\ncontent-length: 0\r\n\r\n" % self.health)
                    continue
                if seen.path.startswith("/kv/"):
                    writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
                    continue
                behave = self.behave if isinstance(self.behave, Behaviour) else self.behave(self, seen)
                answer = asyncio.ensure_future(self._answer(writer, seen, behave))
                gone = asyncio.ensure_future(reader.read(1))
                await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
                # The caller may be gone before anybody reads that it is: writing to it fails first.
                if not answer.done() or isinstance(answer.exception(), ConnectionResetError | BrokenPipeError):
                    answer.cancel()
                    seen.cancelled = True
                    return
                gone.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await gone
                answer.result()
                seen.finished = True
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, seen: Seen, b: Behaviour) -> None:
        await asyncio.sleep(b.delay)
        if b.silent:
            await asyncio.sleep(3600)
        if b.status != 200:
            body = json.dumps({"error": {"message": f"engine says {b.status}", "type": "x", "code": b.status}}).encode()
            writer.write(
                b"HTTP/1.1 %d x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
                % (b.status, len(body), body)
            )
            return
        chat = "chat" in seen.path
        details = {"cached_tokens": b.cached_tokens}
        n = 1 if seen.body.get("kv_transfer_params", {}).get("do_remote_decode") else b.tokens
        usage = {
            "prompt_tokens": b.prompt_tokens,
            "completion_tokens": n,
            "total_tokens": b.prompt_tokens + n,
            "prompt_tokens_details": details,
        }
        if not seen.body.get("stream"):
            text = "".join(f" t{i}" for i in range(n))
            choice = (
                {"index": 0, "message": {"role": "assistant", "content": text}} if chat else {"index": 0, "text": text}
            )
            reply: dict[str, Any] = {"id": "x", "choices": [choice], "usage": usage}
            if seen.body.get("kv_transfer_params", {}).get("do_remote_decode") and b.kv is not None:
                reply["kv_transfer_params"] = b.kv
            body = json.dumps(reply).encode()
            if b.die_after is not None:
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
                    % (len(body), body[:10])
                )
                await writer.drain()
                writer.transport.abort()
                raise ConnectionAbortedError
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
            )
            return
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        asked = (seen.body.get("stream_options") or {}).get("include_usage")
        for i in range(b.tokens):
            if b.die_after is not None and i >= b.die_after:
                await writer.drain()
                await asyncio.sleep(0.02)
                writer.transport.abort()
                raise ConnectionAbortedError
            text = f" t{i}" + "." * b.padding
            choice = {"index": 0, "delta": {"content": text}} if chat else {"index": 0, "text": text}
            event: dict[str, Any] = {"id": "x", "choices": [choice]}
            if b.usage == "every":
                event["usage"] = {**usage, "completion_tokens": i + 1}
            elif asked:
                event["usage"] = None
            await self._event(writer, json.dumps(event), b)
            if b.interval:
                await asyncio.sleep(b.interval)
        if b.error_event:
            await self._event(writer, json.dumps({"error": {"message": "boom"}}), b)
        if (asked and b.usage in ("final", "every")) or b.usage == "every":
            await self._event(writer, json.dumps({"id": "x", "choices": [], "usage": usage}), b)
        if b.usage == "partial":
            await self._event(writer, json.dumps({"id": "x", "choices": [], "usage": {"prompt_tokens": 5}}), b)
        if b.done:
            await self._event(writer, "[DONE]", b)
        writer.write(b"0\r\n\r\n")

    async def _event(self, writer: asyncio.StreamWriter, data: str, b: Behaviour) -> None:
        event = f"data: {data}{b.newline}{b.newline}".encode()
        step = b.split or len(event)
        for start in range(0, len(event), step):
            part = event[start : start + step]
            writer.write(b"%x\r\n%b\r\n" % (len(part), part))
            if b.split:
                await writer.drain()
                await asyncio.sleep(0.0005)
        await writer.drain()


def pod(engine: FakeEngine, role: str, name: str | None = None, **more: Any) -> dict[str, Any]:
    return {
        "name": name or f"{role}-{engine.port}",
        "address": "127.0.0.1",
        "port": engine.port,
        "role": role,
        "kvGroup": "g",
        "ready": True,
        **more,
    }

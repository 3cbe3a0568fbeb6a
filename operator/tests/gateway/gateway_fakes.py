"""A fake engine with scripted misbehaviour, a gateway process under test, and a raw HTTP client for both."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MODEL = "smollm2"
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
                behave = self.behave if isinstance(self.behave, Behaviour) else self.behave(self, seen)
                answer = asyncio.ensure_future(self._answer(writer, seen, behave))
                gone = asyncio.ensure_future(reader.read(1))
                await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
                if not answer.done():
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


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


SETTINGS: dict[str, Any] = {
    "service": "chat",
    "namespace": "team-a",
    "servedName": MODEL,
    "topology": "Disaggregated",
    "objectives": {"ttftSeconds": 5.0, "tpotSeconds": 1.0},
    "requestTimeoutSeconds": 20,
    "stallTimeoutSeconds": 10,
    "gateways": 1,
    "prefillPrior": {"a": 0.01, "b": 0.0001, "c": 0.0},
    "decodeSlots": 64,
}


class GatewayProcess:
    """A real gateway process on loopback."""

    def __init__(
        self,
        pods: list[dict[str, Any]] | None,
        settings: dict[str, Any] | None = None,
        *,
        args: tuple[str, ...] = (),
        env: dict[str, str] | None = None,
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="gateway-test-"))
        self.settings = {**SETTINGS, **(settings or {})}
        self.config, self.pods_file = self.folder / "gateway.json", self.folder / "pods.json"
        self.config.write_text(json.dumps(self.settings))
        self.port, self.metrics_port = free_port(), free_port()
        self._log = (self.folder / "log").open("wb")
        command = [
            sys.executable,
            "-m",
            "steelyard.gateway.main",
            "--config",
            str(self.config),
            "--port",
            str(self.port),
        ]
        command += ["--metrics-port", str(self.metrics_port), "--host", "127.0.0.1", "--drain-delay", "0.2", *args]
        if pods is not None:
            self.write_pods(pods)
            command += ["--pods", str(self.pods_file)]
        self.process = subprocess.Popen(command, stderr=self._log, env={**os.environ, **(env or {})})
        wait_until(lambda: self.admin("/live")[0] == 200)

    def write_pods(self, pods: list[dict[str, Any]]) -> None:
        fresh = self.pods_file.with_suffix(".new")
        fresh.write_text(json.dumps(pods))
        fresh.replace(self.pods_file)

    def write_settings(self, **changes: Any) -> None:
        self.settings = {**self.settings, **changes}
        fresh = self.config.with_suffix(".new")
        fresh.write_text(json.dumps(self.settings))
        fresh.replace(self.config)

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def admin(self, path: str) -> tuple[int, bytes]:
        try:
            answer = request(self.metrics_port, "GET", path)
        except OSError:
            return 0, b""
        return answer.status, answer.body

    def metric(self, name: str, **labels: str) -> float:
        """Sum of the samples of a metric whose labels include these."""
        total = 0.0
        for line in self.admin("/metrics")[1].decode().splitlines():
            if (
                line.startswith(name)
                and line[len(name)] in "{ "
                and all(f'{k}="{v}"' in line for k, v in labels.items())
            ):
                total += float(line.rpartition(" ")[2])
        return total

    def ready(self) -> bool:
        return self.admin("/ready")[0] == 200

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._log.close()
        return self.process.returncode


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


def wait_until(fact: Callable[[], object], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not fact():
        if time.monotonic() > end:
            raise AssertionError("did not become true in time")
        time.sleep(0.02)


@dataclass
class Answer:
    """A response read whole."""

    status: int
    headers: dict[str, str]
    body: bytes
    complete: bool = True

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[str]:
        return [e[6:] for e in self.body.decode().replace("\r\n", "\n").split("\n\n") if e.startswith("data: ")]

    @property
    def text(self) -> str:
        """The text of a stream or a whole answer."""
        if "event-stream" in self.headers.get("content-type", ""):
            choices = [c for e in self.events if e != "[DONE]" for c in json.loads(e).get("choices", [])]
        else:
            choices = self.json["choices"]
        return "".join(c.get("text") or (c.get("delta") or c.get("message") or {}).get("content", "") for c in choices)


class Connection:
    """A raw client connection: exact bytes out, responses in."""

    def __init__(self, port: int, timeout: float = 15.0) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout)
        self.file = self.sock.makefile("rb")

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def line(self) -> bytes:
        return self.file.readline()

    def head(self) -> tuple[int, dict[str, str]]:
        first = self.file.readline()
        if not first:
            raise ConnectionError("closed")
        headers: dict[str, str] = {}
        while (line := self.file.readline().strip()) != b"":
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        return int(first.split()[1]), headers

    def answer(self) -> Answer:
        status, headers = self.head()
        if status == 100:
            status, headers = self.head()
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while True:
                size = self.file.readline()
                if not size:
                    return Answer(status, headers, body, complete=False)
                data = self.file.read(int(size, 16))
                self.file.readline()
                if not data:
                    return Answer(status, headers, body)
                body += data
        if "content-length" in headers:
            return Answer(status, headers, self.file.read(int(headers["content-length"])))
        return Answer(status, headers, self.file.read())

    def answer_body(self) -> bytes:
        """The rest of a chunked body, whose head has been read."""
        body = b""
        while size := int(self.file.readline(), 16):
            body += self.file.read(size)
            self.file.readline()
        return body

    def closed(self) -> bool:
        try:
            return self.file.read(1) == b""
        except (ConnectionError, TimeoutError):
            return True

    def close(self) -> None:
        self.file.close()
        self.sock.close()


def raw_request(method: str, path: str, body: bytes | None = None, **headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "host: x", *(f"{k.replace('_', '-')}: {v}" for k, v in headers.items())]
    if body is not None:
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


def request(
    port: int, method: str, path: str, body: bytes | None = None, timeout: float = 15.0, **headers: str
) -> Answer:
    connection = Connection(port, timeout)
    try:
        connection.send(raw_request(method, path, body, **headers))
        return connection.answer()
    finally:
        connection.close()


def completion(prompt: str = "hello", **fields: Any) -> bytes:
    return json.dumps({"model": MODEL, "prompt": prompt, "max_tokens": 4, **fields}).encode()


def complete(port: int, path: str = "/v1/completions", **fields: Any) -> Answer:
    body = {"model": MODEL, "max_tokens": 4, **fields}
    body.setdefault(*(("messages", [{"role": "user", "content": "hi"}]) if "chat" in path else ("prompt", "hello")))
    return request(port, "POST", path, json.dumps(body).encode())


@contextlib.contextmanager
def gateway(
    pods: list[dict[str, Any]] | None, settings: dict[str, Any] | None = None, **more: Any
) -> Iterator[GatewayProcess]:
    process = GatewayProcess(pods, settings, **more)
    try:
        yield process
    finally:
        process.stop()

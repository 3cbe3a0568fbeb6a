"""A raw HTTP client for the gateway and for engines: exact bytes out, whole answers in."""

import json
import socket
from dataclasses import dataclass
from typing import Any

MODEL = "smollm2"


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


def metric_sum(page: bytes, name: str, labels: dict[str, str]) -> float:
    """Sum of the samples of a metric whose labels include these, on a page of `/metrics`."""
    return sum(
        float(line.rpartition(" ")[2])
        for line in page.decode().splitlines()
        if line.startswith(name) and line[len(name)] in "{ " and all(f'{k}="{v}"' in line for k, v in labels.items())
    )

"""HTTP/1.1 to the API server over connections that are kept; blocking, each used by one thread at a time.

The standard library's client spends most of its time on headers, as if they were a letter's; of an answer only the status,
the length and whether the connection stays are of interest here.
"""

import select
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BufferedReader

from steelyard.observe.server import Server

KEPT = 8  # idle connections; more are closed after use
READ_BYTES = 65536  # at once, and the longest line of a head


class Broken(OSError):
    """The connection ended, or what came over it is not HTTP."""


@dataclass(frozen=True)
class Answer:
    """A whole answer; `sent` and `received` count bytes above TLS, heads included."""

    status: int
    body: bytes
    sent: int
    received: int


class Wire:
    """The connections to one server; safe to share between threads, since each exchange has a connection to itself."""

    def __init__(self, server: Server, timeout_seconds: float) -> None:
        self._server = server
        self._timeout = timeout_seconds
        self._idle: list[_Connection] = []

    def exchange(self, method: str, target: str, headers: Mapping[str, str], body: bytes = b"") -> Answer:
        """Send one request and read its answer. Raises OSError, of which `Broken` and time-outs are kinds."""
        request = self._request(method, target, headers, body)
        connection = self._take()
        try:
            connection.send(request)
            answer, stays = connection.receive(len(request))
        except BaseException:
            connection.close()
            raise
        self._give_back(connection, stays)
        return answer

    def read(self, targets: Sequence[str], headers: Mapping[str, str]) -> list[Answer]:
        """GET several things in one go: all requests are sent at once, and answered in their order.

        A look at a service's world is a dozen reads; one by one, waiting and waking cost more than all else. What a server
        that closes the connection has left unanswered is asked again on another, since a GET may be repeated.
        """
        requests = [self._request("GET", target, headers, b"") for target in targets]
        answers: list[Answer] = []
        while len(answers) < len(requests):
            rest, stays = requests[len(answers) :], True
            connection = self._take()
            try:
                connection.send(b"".join(rest))
                for request in rest:
                    answer, stays = connection.receive(len(request))
                    answers.append(answer)
                    if not stays:
                        break
            except BaseException:
                connection.close()
                raise
            self._give_back(connection, stays)
        return answers

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop().close()

    def _request(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> bytes:
        lines = [f"{method} {target} HTTP/1.1", f"Host: {self._server.host}:{self._server.port}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if token := self._server.bearer():
            lines.append(f"Authorization: Bearer {token}")
        if body:
            lines.append(f"Content-Length: {len(body)}")
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body

    def _take(self) -> "_Connection":
        while True:
            try:
                connection = self._idle.pop()  # one operation, so two threads never get the same
            except IndexError:
                return _Connection(self._server, self._timeout)
            if connection.usable():
                return connection
            connection.close()

    def _give_back(self, connection: "_Connection", stays: bool) -> None:
        if stays and len(self._idle) < KEPT:
            self._idle.append(connection)
        else:
            connection.close()


class _Connection:
    def __init__(self, server: Server, timeout: float) -> None:
        plain = socket.create_connection((server.host, server.port), timeout)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._socket = server.context.wrap_socket(plain, server_hostname=server.host) if server.context else plain
        except BaseException:
            plain.close()
            raise
        self._reader = BufferedReader(self._socket.makefile("rb", buffering=0), READ_BYTES)

    def usable(self) -> bool:
        """Whether the server has left an idle connection alone: anything to read would be its end."""
        waiting = select.poll()
        waiting.register(self._socket, select.POLLIN)
        return not waiting.poll(0)

    def close(self) -> None:
        self._reader.close()
        self._socket.close()

    def send(self, requests: bytes) -> None:
        self._socket.sendall(requests)

    def receive(self, sent: int) -> tuple[Answer, bool]:
        """Read the next answer, to a request of `sent` bytes; also tell whether the connection may be used again."""
        status, head, fields = self._head()
        while status < 200:  # interim answers
            status, head, fields = self._head()
        if b"chunked" in fields.get(b"transfer-encoding", b""):
            (body, extra), stays = self._chunks(), True
        elif b"content-length" in fields:
            length = fields[b"content-length"]
            if not length.isdigit():
                raise Broken(f"the answer's Content-Length is {length[:20]!r}")
            body, extra, stays = self._exactly(int(length)), 0, True
        else:
            body, extra, stays = (b"", 0, True) if status in (204, 304) else (self._reader.read(), 0, False)
        stays = stays and fields.get(b"connection", b"").lower() != b"close"
        return Answer(status, body, sent, head + len(body) + extra), stays

    def _head(self) -> tuple[int, int, dict[bytes, bytes]]:
        """Give the status, the size of the head, and those of its fields that say how the body is framed."""
        line = self._line()
        parts = line.split(None, 2)
        if len(parts) < 2 or not parts[0].startswith(b"HTTP/1.1") or not parts[1].isdigit():
            raise Broken(f"the API server's answer begins with {line[:60]!r}")
        size, fields = len(line), {}
        while (line := self._line()) != b"\r\n":
            size += len(line)
            if line[:1] in b"cCtT":  # Content-Length, Connection, Transfer-Encoding
                name, _, value = line.partition(b":")
                fields[name.lower()] = value.strip()
        return int(parts[1]), size + len(line), fields

    def _chunks(self) -> tuple[bytes, int]:
        """Read a body in chunks; also gives the bytes of the framing."""
        found, framing = [], 0
        while True:
            line = self._line()
            try:
                size = int(line.split(b";", 1)[0], 16)
            except ValueError as failure:
                raise Broken(f"a chunk's length is {line[:20]!r}") from failure
            framing += len(line) + 2
            if size == 0:
                break
            found.append(self._exactly(size))
            self._exactly(2)
        while self._line() != b"\r\n":
            continue  # trailers
        return b"".join(found), framing

    def _line(self) -> bytes:
        line = self._reader.readline(READ_BYTES)
        if not line.endswith(b"\n"):
            raise Broken("the API server closed the connection")
        return line

    def _exactly(self, size: int) -> bytes:
        data = self._reader.read(size)
        if len(data) != size:
            raise Broken("the API server closed the connection in the middle of an answer")
        return data

"""HTTP to the API server, against a socket that answers byte for byte what a table says."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from threading import Thread

import pytest
from steelyard.observe.server import Server
from steelyard.observe.wire import Answer, Broken, Wire

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"


class Scripted:
    """Accepts connections one after the other; each gets its list of pieces, sent one for each head of a request read."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.connections: list[list[bytes]] = []
        self.heads: list[list[bytes]] = []

    def start(self, *connections: list[bytes]) -> Wire:
        self.connections = list(connections)
        Thread(target=self._serve, daemon=True).start()
        return Wire(Server("127.0.0.1", self.listener.getsockname()[1], bearer=lambda: "secret"), timeout_seconds=20)

    def _serve(self) -> None:
        for pieces in self.connections:
            connection, _ = self.listener.accept()
            with connection, connection.makefile("rb") as reader:
                heads: list[bytes] = []
                self.heads.append(heads)
                for piece in pieces:
                    head = b""
                    while (line := reader.readline()).strip():
                        head += line
                    heads.append(head)
                    connection.sendall(piece)


@pytest.fixture
def server() -> Iterator[Scripted]:
    found = Scripted()
    yield found
    found.listener.close()


@pytest.mark.parametrize(
    ("answer", "body", "because"),
    [
        (OK + b"ab", b"ab", "a length"),
        (b"HTTP/1.1 200 OK\r\nTRANSFER-ENCODING: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n", b"abc", "chunks"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\nDate: x\r\n\r\n", b"", "no chunk, and a trailer"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"ab", b"ab", "an interim answer first"),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", b"until the end", "neither: until the connection ends"),
    ],
)
def test_bodies_are_read_as_they_are_framed(server: Scripted, answer: bytes, body: bytes, because: str) -> None:
    wire = server.start([answer])
    found = wire.exchange("GET", "/x", {"Accept": "application/json"})
    assert (found.status, found.body) == (200, body), because


def test_a_request_says_who_asks_and_carries_its_body(server: Scripted) -> None:
    wire = server.start([OK + b"ab"])
    found = wire.exchange("PATCH", "/x?y=z", {"Accept": "application/json"}, b"\r\n")
    assert server.heads[0][0].split(b"\r\n")[0] == b"PATCH /x?y=z HTTP/1.1"
    assert b"Authorization: Bearer secret\r\n" in server.heads[0][0]
    assert b"Content-Length: 2\r\n" in server.heads[0][0]
    assert found == Answer(200, b"ab", sent=len(server.heads[0][0]) + 4, received=len(OK) + 2)


def test_a_connection_is_used_again_as_long_as_the_server_leaves_it_open(server: Scripted) -> None:
    closing = OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    wire = server.start([OK + b"ab", closing + b"cd"], [OK + b"ef"])
    assert [wire.exchange("GET", "/", {}).body for _ in range(3)] == [b"ab", b"cd", b"ef"]
    assert [len(heads) for heads in server.heads] == [2, 1]


def test_an_idle_connection_that_the_server_ended_is_not_used(server: Scripted) -> None:
    wire = server.start([OK + b"ab"], [OK + b"cd"])
    assert wire.exchange("GET", "/", {}).body == b"ab"
    wire._idle[0]._socket.recv(1, socket.MSG_PEEK)  # returns when the end of the first connection has arrived
    assert wire.exchange("GET", "/", {}).body == b"cd"


def test_many_reads_go_in_one_and_are_answered_in_order(server: Scripted) -> None:
    wire = server.start([OK + b"ab", OK + b"cd", OK + b"ef"])
    assert [answer.body for answer in wire.read(["/1", "/2", "/3"], {})] == [b"ab", b"cd", b"ef"]
    assert [head.split()[1] for head in server.heads[0]] == [b"/1", b"/2", b"/3"]


def test_what_a_closing_server_leaves_unanswered_is_asked_again(server: Scripted) -> None:
    closing = OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    wire = server.start([OK + b"ab", closing + b"cd"], [OK + b"ef"])
    assert [answer.body for answer in wire.read(["/1", "/2", "/3"], {})] == [b"ab", b"cd", b"ef"]
    assert [head.split()[1] for head in server.heads[1]] == [b"/3"]


@pytest.mark.parametrize(
    ("answer", "because"),
    [
        (b"", "the connection ended before an answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab", "and in the middle of one"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "no length"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", "no chunk"),
        (b"SSH-2.0\r\n\r\n", "no HTTP"),
    ],
)
def test_anything_else_is_an_error_of_the_connection(server: Scripted, answer: bytes, because: str) -> None:
    wire = server.start([answer])
    with pytest.raises(OSError) as failure:
        wire.exchange("GET", "/", {})
    assert isinstance(failure.value, Broken | ConnectionError), because
    assert wire._idle == []

"""One client connection under a clock of ours: slow loris, idleness, lingering, reading ahead."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest
from gateway_calls import raw_request
from steelyard.gateway.connections import Connections
from steelyard.gateway.errors import ClientError
from steelyard.gateway.holding import Holding
from steelyard.gateway.request import Request
from steelyard.gateway.server import (
    BODY_SECONDS,
    FLUSH_SECONDS,
    LINGER_SECONDS,
    Client,
)
from steelyard.gateway.wire import HEAD_SECONDS, IDLE_SECONDS, MAX_HEAD, full_response


class Clock:
    """A service that answers everything at once, and whose time stands still unless moved."""

    body_limit = 1000
    draining = False
    most = 100  # connections

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.connections: Connections[Client] = Connections(lambda: self.most)
        self.holding = Holding()
        self.early: list[int] = []

    def now(self) -> float:
        return self.seconds

    def serve(self, client: Client, request: Request) -> None:
        client.respond(full_response(200, request.body, keep_alive=client.keep_alive()))

    def refused_early(self, error: ClientError) -> None:
        self.early.append(error.status)


Talk = Callable[[Clock, "Peer"], Awaitable[None]]


class Peer:
    """The other end of the connection."""

    def __init__(self, clock: Clock, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.clock, self.reader, self.writer = clock, reader, writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await asyncio.sleep(0.03)

    async def wait(self, seconds: float) -> None:
        self.clock.seconds += seconds
        self.clock.connections.sweep(self.clock.seconds)
        await asyncio.sleep(0.03)

    async def status(self) -> int:
        async with asyncio.timeout(15):
            head = await self.reader.readuntil(b"\r\n\r\n")
        length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"content-length"))
        await self.reader.readexactly(length)
        return int(head.split()[1])

    async def closed(self, within: float = 15.0) -> bool:
        try:
            async with asyncio.timeout(within):
                return await self.reader.read(1) == b""
        except TimeoutError:
            return False
        except ConnectionError:
            return True


def talk(script: Talk) -> Clock:
    """Run a script against one connection."""

    async def run() -> Clock:
        clock = Clock()
        server = await asyncio.get_running_loop().create_server(lambda: Client(clock), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
        await script(clock, Peer(clock, reader, writer))
        writer.close()
        server.close()
        async with asyncio.timeout(15):
            while clock.connections.open:
                await asyncio.sleep(0.01)
        assert clock.holding.arriving == 0, "what arrived is let go, however it ends"
        return clock

    return asyncio.run(run())


WHOLE = raw_request("POST", "/v1/completions", b"{}")


def test_a_head_that_trickles_is_cut_off_at_its_time() -> None:
    async def script(clock: Clock, peer: Peer) -> None:
        await peer.send(b"POST /v1/completions HTTP/1.1\r\n")
        for _ in range(3):
            await peer.wait(HEAD_SECONDS / 4)
            await peer.send(b"x-y: z\r\n")
        assert not await peer.closed(0.3)
        await peer.wait(HEAD_SECONDS / 3)
        assert await peer.status() == 408
        assert await peer.closed()

    assert talk(script).early == [408]


def test_a_body_that_trickles_is_cut_off_at_its_time() -> None:
    async def script(clock: Clock, peer: Peer) -> None:
        await peer.send(WHOLE[:-1])
        await peer.wait(BODY_SECONDS - 1)
        assert not await peer.closed(0.3)
        await peer.wait(2)
        assert await peer.status() == 408

    talk(script)


def test_a_silent_connection_is_closed_without_a_word() -> None:
    async def script(clock: Clock, peer: Peer) -> None:
        await peer.wait(HEAD_SECONDS + 1)
        assert await peer.closed()

    assert talk(script).early == []


def test_an_idle_connection_is_kept_for_a_while() -> None:
    async def script(clock: Clock, peer: Peer) -> None:
        for _ in range(3):
            await peer.send(WHOLE)
            assert await peer.status() == 200
            await peer.wait(IDLE_SECONDS - 1)
        await peer.wait(2)
        assert await peer.closed()

    talk(script)


def test_a_refused_client_that_stays_is_broken_off() -> None:
    async def script(clock: Clock, peer: Peer) -> None:
        await peer.send(raw_request("POST", "/v1/completions", content_length="5000"))
        assert await peer.status() == 413
        await peer.send(b"x" * 2000)
        assert clock.connections.open
        await peer.wait(LINGER_SECONDS + 1)
        assert not clock.connections.open

    assert talk(script).early == [413]


@pytest.mark.parametrize("count", [2, 30, 60])
def test_requests_sent_ahead_are_all_answered(count: int) -> None:
    async def script(clock: Clock, peer: Peer) -> None:
        await peer.send(WHOLE * count)
        assert [await peer.status() for _ in range(count)] == [200] * count

    talk(script)


def test_a_flood_of_requests_in_one_read_is_refused_after_those_already_read() -> None:
    async def script(clock: Clock, peer: Peer) -> None:
        await peer.send(b"GET / HTTP/1.1\r\n\r\n" * 500)
        statuses = []
        while (status := await peer.status()) == 200:
            statuses.append(status)
        assert (status, len(statuses) < 100) == (400, True)
        assert await peer.closed()

    talk(script)


def test_buffers_are_capped() -> None:
    async def script(clock: Clock, peer: Peer) -> None:
        (client,) = clock.connections.open
        raw = client._transport.get_extra_info("socket")
        assert raw.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) <= 512 * 1024

    talk(script)


def test_an_offer_of_http2_is_ignored_and_the_body_read() -> None:
    """Java's HttpClient sends it with every request to a plain port."""
    offer = {"connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c", "http2-settings": "AAMAAABkAAQAAP"}
    bodies: list[bytes] = []

    async def script(clock: Clock, peer: Peer) -> None:
        serve = clock.serve

        def noting(client: Client, request: Request) -> None:
            bodies.append(request.body)
            serve(client, request)

        clock.serve = noting  # type: ignore[method-assign]
        await peer.send(raw_request("POST", "/v1/completions", b"{1}", **offer))
        await peer.send(raw_request("POST", "/v1/completions", b"{2}", **offer))
        assert [await peer.status(), await peer.status()] == [200, 200]

    talk(script)
    assert bodies == [b"{1}", b"{2}"]


@pytest.mark.parametrize(
    "head",
    [
        "POST /v1/completions HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\ncontent-length: 2",
        "POST /v1/completions HTTP/1.1\r\nconnection: upgrade, keep-alive\r\nupgrade: x\r\ncontent-length: 20",
        "GET /v1/models HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket",
        "CONNECT /v1/completions HTTP/1.1",
    ],
)
def test_another_protocol_is_refused_with_one_answer(head: str) -> None:
    """The parser leaves the body unread: an answer to the request without it and one to the rest would be two."""

    async def script(clock: Clock, peer: Peer) -> None:
        await peer.send(head.encode() + b"\r\nhost: x\r\n\r\n{}" + WHOLE)
        assert await peer.status() == 400
        assert await peer.closed()

    assert talk(script).early == [400]


@pytest.mark.parametrize("wait", [False, True])
def test_a_trailer_neither_counts_as_head_nor_speaks_for_it(wait: bool) -> None:
    seen: list[Request] = []

    async def script(clock: Clock, peer: Peer) -> None:
        clock.body_limit = 2 * MAX_HEAD
        serve = clock.serve

        def noting(client: Client, request: Request) -> None:
            seen.append(request)
            serve(client, request)

        clock.serve = noting  # type: ignore[method-assign]
        body = b"x" * (MAX_HEAD + 1)
        await peer.send(raw_request("POST", "/v1/completions", transfer_encoding="chunked"))
        await peer.send(b"%x\r\n%b\r\n0\r\n" % (len(body), body))
        if wait:
            await peer.send(b"authoriza")
        await peer.send((b"" if not wait else b"tion: Bearer x\r\n") + b"x-checksum: 1\r\n\r\n")
        assert await peer.status() == 200

    assert talk(script).early == []
    assert [(len(request.body), request.authorization) for request in seen] == [(MAX_HEAD + 1, None)]


def test_a_trailer_without_end_is_refused() -> None:
    """The parser keeps a field until it is whole, and no limit of the body's sees it."""

    async def script(clock: Clock, peer: Peer) -> None:
        await peer.send(raw_request("POST", "/v1/completions", transfer_encoding="chunked") + b"1\r\nx\r\n0\r\nx: ")
        for _ in range(5):
            await peer.send(b"y" * (MAX_HEAD // 4))
        assert await peer.status() == 431

    assert talk(script).early == [431]


def test_what_follows_a_request_that_ends_its_connection_is_no_request() -> None:
    async def script(clock: Clock, peer: Peer) -> None:
        await peer.send(raw_request("POST", "/v1/completions", b"{}", connection="close") + b"GARBAGE")
        assert await peer.status() == 200
        assert await peer.closed()

    assert talk(script).early == []


def big_answers(clock: Clock, served: list[Request], size: int) -> None:
    def serve(client: Client, request: Request) -> None:
        served.append(request)
        client.respond(full_response(200, b"x" * size, keep_alive=client.keep_alive()))

    clock.serve = serve  # type: ignore[method-assign]


def test_a_client_that_reads_no_answers_gets_no_more_of_them() -> None:
    """Answers to requests sent ahead would fill memory as fast as a client can ask."""

    async def script(clock: Clock, peer: Peer) -> None:
        served: list[Request] = []
        big_answers(clock, served, 4 * 1024 * 1024)
        for _ in range(10):
            await peer.send(WHOLE)
        few = len(served)
        assert few <= 3
        for _ in range(10):
            assert await peer.status() == 200
        assert len(served) == 10, "they were not lost"

    talk(script)


def test_a_closing_connection_is_broken_off_when_its_client_does_not_read() -> None:
    async def script(clock: Clock, peer: Peer) -> None:
        big_answers(clock, [], 16 * 1024 * 1024)
        await peer.send(raw_request("POST", "/v1/completions", b"{}", connection="close"))
        await peer.wait(FLUSH_SECONDS - 1)
        assert clock.connections.open, "it has its time"
        await peer.reader.read(1024 * 1024)
        await asyncio.sleep(0.1)
        await peer.wait(2)
        assert clock.connections.open, "it reads, if slowly"
        await peer.wait(FLUSH_SECONDS + 1)
        await peer.wait(FLUSH_SECONDS + 1)
        assert not clock.connections.open

    talk(script)


async def newcomer(peer: Peer) -> Peer:
    return Peer(peer.clock, *await asyncio.open_connection(*peer.writer.get_extra_info("peername")))


def test_beyond_the_limit_the_connection_at_rest_for_longest_makes_room() -> None:
    async def script(clock: Clock, peer: Peer) -> None:
        clock.most = 2
        second = await newcomer(peer)
        await second.send(b"GET / HTT")  # half a request is no work yet
        await peer.send(WHOLE)
        assert await peer.status() == 200
        third = await newcomer(peer)
        assert await second.closed(), "the first one was of use since"
        for one in (peer, third):
            await one.send(WHOLE)
            assert await one.status() == 200
            one.writer.close()
        assert (clock.connections.evicted, clock.connections.refused) == (1, 0)

    talk(script)


def test_beyond_the_limit_the_newcomer_is_refused_where_all_are_at_work() -> None:
    async def script(clock: Clock, peer: Peer) -> None:
        clock.most = 1
        serve, asked = clock.serve, []
        clock.serve = lambda client, request: asked.append((client, request))  # type: ignore[method-assign]
        await peer.send(WHOLE)
        assert await (await newcomer(peer)).closed()
        serve(*asked[0])
        assert await peer.status() == 200, "those there are served"
        assert (clock.connections.evicted, clock.connections.refused) == (0, 1)

    talk(script)

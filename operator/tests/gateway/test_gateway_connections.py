"""Crowds of connections on both ports: who makes room for whom, and that the service goes on."""

import asyncio
import resource
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from time import monotonic

import pytest
from gateway_calls import Connection, complete
from gateway_fakes import FakeEngine, pod
from gateway_process import gateway
from steelyard.gateway.admin import MOST_CONNECTIONS, AdminConnection, live_page
from steelyard.gateway.connections import Connections
from steelyard.gateway.wire import HEAD_SECONDS, IDLE_SECONDS, MAX_HEAD


class Idler:
    """A connection that does what it is told."""

    def __init__(self, flushing: bool = False) -> None:
        self.aborted = False
        self.busy = flushing

    def flushing(self) -> bool:
        return self.busy

    def sweep(self, now: float) -> None: ...

    def abort(self) -> None:
        self.aborted = True


def test_the_one_at_rest_for_longest_makes_room() -> None:
    connections: Connections[Idler] = Connections(lambda: 3)
    first, second, third, fourth, fifth = (Idler() for _ in range(5))
    for one in (first, second, third):
        assert connections.admit(one)
    connections.resting.pop(first)  # at work
    assert connections.admit(fourth)
    assert connections.admit(fifth)
    assert [one.aborted for one in (first, second, third, fourth)] == [False, True, True, False]
    assert connections.open == {first, fourth, fifth}
    assert (connections.evicted, connections.refused) == (2, 0)


def test_an_answer_on_its_way_is_not_cut_while_another_can_go() -> None:
    connections: Connections[Idler] = Connections(lambda: 2)
    writing, idle = Idler(flushing=True), Idler()
    connections.admit(writing)
    connections.admit(idle)
    assert connections.admit(Idler(flushing=True))
    assert (writing.aborted, idle.aborted) == (False, True)
    assert connections.admit(Idler()), "where all are writing, one must go"
    assert writing.aborted


def test_where_all_are_at_work_the_newcomer_is_refused() -> None:
    connections: Connections[Idler] = Connections(lambda: 1)
    worker = Idler()
    connections.admit(worker)
    connections.resting.clear()
    assert not connections.admit(Idler())
    connections.remove(worker)
    connections.remove(worker)
    assert connections.admit(Idler())


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_descriptors")
def test_crowds_of_idle_connections_stop_nothing() -> None:
    pods = [pod(FakeEngine(), "prefill"), pod(FakeEngine(), "decode")]
    with gateway(pods, {"limits": {"concurrent": 1}}) as process:
        idle: list[socket.socket] = []
        oldest = Connection(process.port)
        for _ in range(6):
            idle += [socket.create_connection(("127.0.0.1", process.port)) for _ in range(200)]
            idle += [socket.create_connection(("127.0.0.1", process.metrics_port)) for _ in range(50)]
            assert complete(process.port).status == 200
            assert process.admin("/live")[0] == 200
        assert process.metric("steelyard_gateway_connections", port="api") <= 1002
        assert process.metric("steelyard_gateway_connections", port="metrics") <= MOST_CONNECTIONS
        assert process.metric("steelyard_gateway_connections_evicted_total", port="api") >= 1200 - 1002
        assert process.metric("steelyard_gateway_connections_evicted_total", port="metrics") >= 300 - MOST_CONNECTIONS
        assert process.metric("steelyard_gateway_connections_refused_total") == 0
        assert len(list(Path(f"/proc/{process.process.pid}/fd").iterdir())) < 1002 + MOST_CONNECTIONS + 50
        assert oldest.closed(), "it was at rest for longest"
        for one in idle:
            one.close()
        assert complete(process.port).status == 200


Talk = Callable[["Connections[AdminConnection]", asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
GET = b"GET /live HTTP/1.1\r\nhost: x\r\n\r\n"


def talk_to_the_metrics_port(script: Talk) -> None:
    async def run() -> None:
        connections: Connections[AdminConnection] = Connections(lambda: 2)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: AdminConnection({b"/live": live_page}, connections), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        async with asyncio.timeout(30):
            await script(connections, reader, writer)
        writer.close()
        server.close()

    asyncio.run(run())


async def answered(reader: asyncio.StreamReader) -> bytes:
    status = (await reader.readline())[9:12]
    rest = await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(int(rest.lower().partition(b"content-length: ")[2].split(b"\r")[0]))
    return status


async def closed(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read(1) == b""
    except ConnectionError:
        return True


def test_a_connection_of_the_metrics_port_rests_for_a_while_only() -> None:
    async def script(
        connections: "Connections[AdminConnection]", reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(GET)
        assert await answered(reader) == b"200"
        connections.sweep(monotonic() + IDLE_SECONDS - 30)
        writer.write(GET)
        assert await answered(reader) == b"200", "scrapes a minute apart keep it"
        connections.sweep(monotonic() + IDLE_SECONDS + 1)
        assert await closed(reader)
        assert not connections.open

    talk_to_the_metrics_port(script)


def test_a_half_sent_request_to_the_metrics_port_has_little_time_however_its_bytes_drip() -> None:
    async def script(
        connections: "Connections[AdminConnection]", reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(GET + GET[:5])
        assert await answered(reader) == b"200"
        writer.write(GET[5:10])
        await asyncio.sleep(0.1)
        connections.sweep(monotonic() + HEAD_SECONDS + 1)
        assert await closed(reader)

    talk_to_the_metrics_port(script)


@pytest.mark.parametrize(
    ("flood", "status"), [(GET * 200, b"400"), (b"GET /live HTTP/1.1\r\nx: " + b"y" * (2 * MAX_HEAD), b"431")]
)
def test_a_flood_on_the_metrics_port_is_refused(flood: bytes, status: bytes) -> None:
    async def script(
        connections: "Connections[AdminConnection]", reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(flood)
        assert await answered(reader) == status
        assert await closed(reader)

    talk_to_the_metrics_port(script)

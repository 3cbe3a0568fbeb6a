"""Crowds of large requests: their memory is bounded, small requests go on, and what was let go can be taken again."""

import contextlib
import socket
from collections.abc import Iterator

import pytest
from gateway_calls import Answer, Connection, complete, completion, raw_request, request
from gateway_fakes import FakeEngine, pod
from gateway_process import GatewayProcess, gateway, wait_until
from steelyard.gateway.holding import MOST_ARRIVING, MOST_WAITING

BODY = completion("x" * 4_000_000)
REQUEST = raw_request("POST", "/v1/completions", BODY)
FIT_WAITING = MOST_WAITING // len(BODY)


def memory(process: GatewayProcess) -> int:
    """Bytes of the gateway that are in memory."""
    return int(open(f"/proc/{process.process.pid}/statm").read().split()[1]) * 4096


@contextlib.contextmanager
def crowd(process: GatewayProcess, number: int, data: bytes) -> Iterator[list[Connection]]:
    """So many connections that have sent this."""
    connections: list[Connection] = []
    try:
        for _ in range(number):  # opened one by one: a connection that does not send is closed after a while
            connections.append(Connection(process.port, timeout=60))
            with contextlib.suppress(ConnectionError):  # refused before its end
                connections[-1].send(data)
        yield connections
    finally:
        for connection in connections:
            connection.close()


def queued(process: GatewayProcess) -> float:
    """Requests that wait or are with the engine, which never answers."""
    return process.metric("steelyard_gateway_arrived_total") - process.metric("steelyard_gateway_requests_total")


def refused(process: GatewayProcess) -> float:
    return process.metric("steelyard_gateway_requests_total", outcome="refused")


@pytest.fixture
def stuck() -> Iterator[GatewayProcess]:
    """A gateway whose prefill engine never answers: the kernel takes its connections, and nobody ever looks at them."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        prefill = {**pod(FakeEngine(), "prefill"), "port": silent.getsockname()[1]}
        pods = [prefill, pod(FakeEngine(), "decode")]
        with gateway(pods, {"requestTimeoutSeconds": 120, "stallTimeoutSeconds": 110}) as process:
            yield process


def test_requests_that_wait_are_held_up_to_a_bound(stuck: GatewayProcess) -> None:
    before = memory(stuck)
    for _ in range(2):  # what the first crowd held is free for the second
        gone = refused(stuck)
        with crowd(stuck, FIT_WAITING + 6, REQUEST) as connections:
            wait_until(lambda gone=gone: refused(stuck) >= gone + 6, seconds=60)
            assert queued(stuck) == FIT_WAITING
            told = connections[-1].answer()
            assert (told.status, told.headers["retry-after"]) == (429, "1")
            with crowd(stuck, 3, raw_request("POST", "/v1/completions", completion("small"))):
                wait_until(lambda: queued(stuck) == FIT_WAITING + 3)
            assert memory(stuck) - before < MOST_ARRIVING + 2.5 * MOST_WAITING
        wait_until(lambda: queued(stuck) == 0, seconds=60)


def test_bodies_that_arrive_are_held_up_to_a_bound(stuck: GatewayProcess) -> None:
    fit = MOST_ARRIVING // len(BODY)
    for _ in range(2):
        gone = refused(stuck)
        with crowd(stuck, fit + 12, REQUEST[:-10]):
            wait_until(lambda gone=gone: refused(stuck) >= gone + 6, seconds=60)
        wait_until(lambda: stuck.metric("steelyard_gateway_connections", port="api") == 0, seconds=60)
    with crowd(stuck, fit, REQUEST[:-10]):
        wait_until(lambda: stuck.metric("steelyard_gateway_connections", port="api") == fit)
        assert refused(stuck) < gone + 24, "what left before is not counted any more"


def test_large_requests_one_after_the_other_are_all_served() -> None:
    engines = [pod(FakeEngine(), "prefill"), pod(FakeEngine(), "decode")]
    with gateway(engines) as process:
        answers: list[Answer] = []
        for number in range(2 * FIT_WAITING):
            body = completion("x" * 3_900_000, stream=bool(number % 2))
            answers.append(request(process.port, "POST", "/v1/completions", body, timeout=60))
        assert {answer.status for answer in answers} == {200}
        assert complete(process.port).status == 200

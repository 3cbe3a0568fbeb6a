"""The benchmark's own instruments: they compile, count every request, see what goes wrong, and measure a real gateway."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from bench.gateway import compiled
from bench.gateway.figures import FIGURES, medians
from bench.gateway.measure import Programs, repeat
from bench.gateway.processes import Cores, engine_stats, free_ports, load, running
from bench.gateway.report import as_json, as_page, conditions
from bench.gateway.scenarios import Scenario
from bench.gateway.subjects import direct, steelyard

CORES = Cores.of_this_machine()
SMALL = (
    Scenario("paced", "paced", streams=5, warm=0.2, seconds=0.4, streamed=True, tokens=20, interval_us=33_333),
    Scenario("arrivals", "arrivals", rate=50, warm=0.1, seconds=0.4, streamed=True, tokens=4),
    Scenario("requests", "requests", streams=4, warm=0.1, seconds=0.3),
    Scenario("flat-out", "flat out", streams=5, warm=0.1, seconds=0.3, streamed=True, tokens=100),
)


@pytest.fixture(scope="module")
def programs() -> Programs:
    return Programs(*compiled.programs())


@contextmanager
def stub(programs: Programs, folder: Path) -> Iterator[int]:
    (port,) = free_ports(1)
    health = f"http://127.0.0.1:{port}/health"
    with running((str(programs.engine), str(port)), CORES.engine, health, folder / "engine.log"):
        yield port


def run(programs: Programs, port: int, scenario: Scenario, *more: str) -> dict[str, Any]:
    return load(programs.load, CORES.client, (f"port={port}", *more, *scenario.settings()), scenario.duration)


@pytest.mark.parametrize("scenario", SMALL, ids=lambda s: s.name)
def test_the_client_and_the_engine_count_the_same(programs: Programs, tmp_path: Path, scenario: Scenario) -> None:
    with stub(programs, tmp_path) as port:
        seen = run(programs, port, scenario, "direct=1")
        stats = engine_stats(port)
    assert seen["issued"] == seen["completed"] > 0
    assert (seen["failed"], seen["unfinished"]) == (0, 0)
    assert stats["prefills"] == stats["decodes"] == stats["handoffs"] == seen["completed"]
    assert stats["events"] == (seen["completed"] * scenario.tokens if scenario.streamed else 0)
    assert seen["window_completed"] + seen["window_events"] > 0
    assert seen["window_completed"] <= seen["completed"]
    assert seen["window_frames"] <= seen["window_events"]


def test_paced_streams_keep_their_pace_and_their_number(programs: Programs, tmp_path: Path) -> None:
    with stub(programs, tmp_path) as port:
        seen = run(programs, port, SMALL[0])
    assert seen["most_under_way"] == 5
    # Five streams of 30 a second: a busy machine may delay some, nothing may hurry them.
    assert seen["window_events"] <= 5 * 30 * seen["window_seconds"] + 2 * 5


HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT = b"9\r\ndata: x\n\n\r\n"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (HEAD + EVENT, "connection closed"),  # the stream breaks off
        (HEAD + EVENT + b"0\r\n\r\n", "events missing"),  # it ends well but short
        (b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n", "status"),
        (b"", "connection closed"),
    ],
)
def test_the_client_sees_what_is_not_an_answer(programs: Programs, answer: bytes, why: str) -> None:
    scenario = Scenario("few", "few", rate=40, warm=0.0, seconds=0.3, streamed=True, tokens=4)
    with answering(answer) as port:
        seen = run(programs, port, scenario)
    assert seen["issued"] == seen["failed"] > 0
    assert seen["first_failure"] == why


def test_the_client_sees_that_nobody_listens(programs: Programs) -> None:
    seen = run(programs, free_ports(1)[0], Scenario("few", "few", rate=40, warm=0.0, seconds=0.2))
    assert seen["issued"] == seen["failed"] > 0
    assert seen["first_failure"] == "connection refused"


@contextmanager
def answering(answer: bytes) -> Iterator[int]:
    """A server that reads one request of a connection, says `answer`, and closes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    read = b""
                    while b"}" not in read:
                        read += connection.recv(65536)
                    connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def test_a_small_run_through_the_real_gateway_is_sound_and_complete(programs: Programs) -> None:
    told: list[tuple[str, str]] = []
    found = [
        repeat(make, SMALL, programs, CORES, lambda subject, scenario: told.append((subject.name, scenario.name)))
        for make in (steelyard, lambda ports, folder: direct())
    ]
    assert [one.faults for one in found] == [(), ()]
    assert told == [(name, scenario.name) for name in ("steelyard", "direct") for scenario in SMALL]
    ours = medians(found)["steelyard"]
    assert [figure.name for figure in FIGURES if ours[figure.name] is None] == []
    where = conditions(1, 0.4, CORES, "none")
    page = as_page(where, found, SMALL)
    assert all(figure.words in page for figure in FIGURES)
    assert as_json(where, found)["repeats"][0]["loads"].keys() == {scenario.name for scenario in SMALL}

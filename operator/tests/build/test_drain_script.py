"""The script that waits in other engines' pods before SIGTERM, as a process, against a server that changes its load."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from engine_bodies import BASES
from operator_bodies import KNOWN, SITE, service
from steelyard.build.engines import choose, drain_script
from steelyard.build.engines.accelerated import DRAIN_SCRIPT

PAGE = """# HELP vllm:num_requests_running …
vllm:num_requests_running{{engine="0",model_name="a b"}} {0}
vllm:num_requests_running{{engine="1",model_name="a b"}} 0.0
vllm:num_requests_waiting{{engine="0"}} 0.0
vllm:num_requests_waiting_by_reason{{reason="x"}} 7.0
"""
GAUGES = ("--gauge", "vllm:num_requests_running", "--gauge", "vllm:num_requests_waiting")
PAUSE = f"PAUSE_SECONDS = {drain_script.PAUSE_SECONDS}"
HURRIED = DRAIN_SCRIPT.replace(PAUSE, "PAUSE_SECONDS = 0.1")  # it looks as often, in less time


class Engine(BaseHTTPRequestHandler):
    """Answers its page with what is next in the list, running requests or a whole answer; the last one stays."""

    running: list[float | bytes]
    page = "/metrics"
    asked = 0

    def do_GET(self) -> None:
        cls = type(self)
        cls.asked += 1
        load = cls.running.pop(0) if len(cls.running) > 1 else cls.running[0]
        if isinstance(load, bytes):
            self.wfile.write(load)
            return
        self.send_response(200 if self.path == cls.page else 404)
        self.end_headers()
        self.wfile.write(PAGE.format(load).encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def engine() -> Iterator[tuple[type[Engine], int]]:
    handler = type("Handler", (Engine,), {"running": [0.0], "asked": 0})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield handler, server.server_port
    server.shutdown()


def drained(port: int, lease: float = 0, timeout: float = 100, more: tuple[str, ...] = ()) -> int:
    options = ("--port", str(port), "--lease", str(lease), "--timeout", str(timeout), *more)
    return subprocess.run([sys.executable, "-c", HURRIED, *options, *GAUGES], check=False).returncode


def test_sums_the_gauges_of_exactly_these_names() -> None:
    assert drain_script.load(PAGE.format("3.0"), ["vllm:num_requests_running", "vllm:num_requests_waiting"]) == 3


def test_waits_until_nothing_runs_and_then_for_two_looks(engine: tuple[type[Engine], int]) -> None:
    handler, port = engine
    handler.running = [2.0, 1.0, 0.0, 1.0, 0.0]
    assert drained(port) == 0
    assert handler.asked == 6, "one empty look between two requests is not enough"


def test_waits_for_the_lease_of_prefilled_state(engine: tuple[type[Engine], int]) -> None:
    handler, port = engine
    assert drained(port, lease=0) == 0
    without, handler.asked = handler.asked, 0
    assert drained(port, lease=4) == 0
    assert handler.asked > without


def test_gives_up_in_time(engine: tuple[type[Engine], int]) -> None:
    handler, port = engine
    handler.running = [1.0]
    assert drained(port, timeout=3) == 1


HEAD = b"HTTP/1.0 200 OK\r\n\r\n"
WAITING = b"vllm:num_requests_waiting 0\n"
UNKNOWN: list[tuple[str, bytes]] = [
    ("a page without the gauges", HEAD + b"up 1\n"),
    ("an empty page", HEAD),
    ("one gauge of two", HEAD + WAITING),
    ("JSON, as TensorRT-LLM's /metrics", HEAD + b"[]"),
    ("no number", HEAD + WAITING + b"vllm:num_requests_running many\n"),
    ("not a number", HEAD + WAITING + b"vllm:num_requests_running NaN\n"),
    ("no text", HEAD + b"\xff\xfe"),
    ("no HTTP", b"hello\r\n"),
    ("half an answer", b"HTTP/1.0 200 OK\r\nContent-Length: 900\r\n\r\n" + WAITING),
    ("nothing", b""),
    ("an error", b"HTTP/1.0 500 broken\r\n\r\n"),
]


@pytest.mark.parametrize("answer", [case[1] for case in UNKNOWN], ids=[case[0] for case in UNKNOWN])
def test_what_cannot_be_read_is_no_quiet(engine: tuple[type[Engine], int], answer: bytes) -> None:
    """Requests may run behind it: the script looks again, until it reads a load of nothing or its time is up."""
    handler, port = engine
    handler.running = [0.0, answer, 0.0]
    assert drained(port) == 0
    assert handler.asked == 4, "the broken answer began the two quiet looks anew"


def test_a_page_that_never_has_the_gauges_is_waited_for_until_the_time_is_up(engine: tuple[type[Engine], int]) -> None:
    handler, port = engine
    handler.running = [HEAD + b"up 1\n"]
    assert drained(port, timeout=2) == 1


def test_the_page_is_where_the_engine_has_it(engine: tuple[type[Engine], int]) -> None:
    handler, port = engine
    handler.page = "/prometheus/metrics"
    assert drained(port, timeout=2) == 1
    assert drained(port, more=("--path", "/prometheus/metrics")) == 0


@pytest.mark.parametrize(
    ("engine_name", "path"), [("vllm", None), ("sglang", None), ("tensorrt-llm", "/prometheus/metrics")]
)
def test_each_engine_is_asked_at_its_own_page(engine_name: str, path: str | None) -> None:
    of = service(BASES[engine_name])
    command = choose.parts(of, next(iter(of.spec.roles)), KNOWN["h200"], SITE).drain_command
    assert (command[command.index("--path") + 1] if "--path" in command else None) == path


def test_an_engine_that_is_gone_needs_no_waiting() -> None:
    assert drained(port=9) == 0

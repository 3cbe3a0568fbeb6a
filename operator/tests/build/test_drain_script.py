"""The script that waits in other engines' pods before SIGTERM, as a process, against a server that changes its load."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from steelyard.build.engines import drain_script
from steelyard.build.engines.accelerated import DRAIN_SCRIPT

PAGE = """# HELP vllm:num_requests_running …
vllm:num_requests_running{{engine="0",model_name="a b"}} {0}
vllm:num_requests_running{{engine="1",model_name="a b"}} 0.0
vllm:num_requests_waiting{{engine="0"}} 0.0
vllm:num_requests_waiting_by_reason{{reason="x"}} 7.0
"""
GAUGES = ("--gauge", "vllm:num_requests_running", "--gauge", "vllm:num_requests_waiting")


class Engine(BaseHTTPRequestHandler):
    """Answers /metrics with the running requests that are next in the list; the last one stays."""

    running: list[float]
    asked = 0

    def do_GET(self) -> None:
        cls = type(self)
        cls.asked += 1
        load = cls.running.pop(0) if len(cls.running) > 1 else cls.running[0]
        self.send_response(200)
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


def drained(port: int, lease: float = 0, timeout: float = 100) -> int:
    options = ("--port", str(port), "--lease", str(lease), "--timeout", str(timeout))
    return subprocess.run([sys.executable, "-c", DRAIN_SCRIPT, *options, *GAUGES], check=False).returncode


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


def test_an_engine_that_is_gone_needs_no_waiting() -> None:
    assert drained(port=9) == 0

"""Engines as real processes on loopback, for the tests that ask them over HTTP."""

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

PROFILE = {
    "startupSeconds": 0.0,
    "kvTokens": 4096,
    "prefill": {"a": 0.001, "b": 1e-5},
    "decode": {"g0": 0.002},
    "transferBytesPerSecond": 1e9,
    "bytesPerToken": 1000,
}
PROMPT = "Weights slide along the beam until both sides rest. " * 3
REMOTE_DECODE = {"do_remote_decode": True, "do_remote_prefill": False}
_START_SECONDS = 60
PATIENCE_SECONDS = 300  # for an answer: the time of a test ends it sooner
TLS = ssl.create_default_context()  # unused, but reading the certificates anew takes 25 ms a call


@dataclass
class Running:
    """One engine process: its URL and what the tests ask it."""

    process: subprocess.Popen[bytes]
    port: int
    kv_port: int
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def post(self, path: str, **body: Any) -> httpx.Response:
        return httpx.post(self.url + path, json=body, timeout=PATIENCE_SECONDS, verify=TLS)

    def complete(self, prompt: Any, **body: Any) -> dict[str, Any]:
        answer = self.post("/v1/completions", prompt=prompt, **body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def events(self, path: str, **body: Any) -> list[Any]:
        """Stream an answer and return its events; the end mark as a string."""
        with httpx.stream(
            "POST", self.url + path, json=body | {"stream": True}, timeout=PATIENCE_SECONDS, verify=TLS
        ) as answer:
            assert answer.status_code == 200
            lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
        return [json.loads(line) if line != "[DONE]" else line for line in lines]

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum of the samples of `name` that have these labels."""
        text = httpx.get(self.url + "/metrics", verify=TLS).text
        samples = [s for family in text_string_to_metric_families(text) for s in family.samples if s.name == name]
        assert samples, f"no metric {name}"
        return sum(s.value for s in samples if labels.items() <= s.labels.items())

    def ready(self) -> bool:
        try:
            return httpx.get(self.url + "/health", verify=TLS).status_code == 200
        except httpx.TransportError:
            return False

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def exit_status(self) -> int:
        return self.process.wait(timeout=60)


def wait_until(condition: Callable[[], bool], seconds: float = _START_SECONDS) -> None:
    """Wait for a condition that is going to hold; fail where it does not in a generous time."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


Start = Callable[..., Running]


@pytest.fixture(scope="module")
def start_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Start engines with flags given as keywords; all end with the module."""
    started: list[Running] = []

    def start(wait: bool = True, **flags: object) -> Running:
        port, kv_port = free_ports(2)
        folder = tmp_path_factory.mktemp("engine")
        values = {"port": port, "kv_port": kv_port, "advertise_host": "127.0.0.1"} | flags
        arguments = [
            text
            for name, value in values.items()
            for one in (value if isinstance(value, list) else [value])
            for text in (f"--{name.replace('_', '-')}", str(one))
        ]
        command = [sys.executable, "-c", "from steelyard_engine.main import main; main()", *arguments]
        log = folder / "log"
        with log.open("wb") as file:
            process = subprocess.Popen(command, stderr=file)
        engine = Running(process, port, kv_port, log)
        started.append(engine)
        if wait:
            wait_until(lambda: engine.ready() or process.poll() is not None)
            assert process.poll() is None, log.read_text()
        return engine

    yield start
    for engine in started:
        engine.process.kill()
        engine.process.wait()


@pytest.fixture(scope="module")
def start_simulated(start_engine: Start, tmp_path_factory: pytest.TempPathFactory) -> Start:
    """Start simulated engines; `times` changes fields of the profile."""

    def start(times: dict[str, object] | None = None, **flags: object) -> Running:
        path = tmp_path_factory.mktemp("profile") / "profile.json"
        path.write_text(json.dumps(PROFILE | (times or {})))
        values = {"backend": "simulated", "served_name": "sim", "profile": path, "context_length": 1024}
        return start_engine(**(values | flags))

    return start


@pytest.fixture(scope="module")
def prefill(start_simulated: Start) -> Running:
    """Return a simulated engine that prefills for `decode`."""
    return start_simulated()


@pytest.fixture(scope="module")
def decode(start_simulated: Start) -> Running:
    """Return a simulated engine that goes on where `prefill` ended."""
    return start_simulated()


def hand_off(prefill: Running, prompt: str = PROMPT) -> dict[str, Any]:
    """Let an engine prefill and hold the state; return where it can be fetched."""
    answer = prefill.complete(prompt, max_tokens=1, stream=False, kv_transfer_params=REMOTE_DECODE)
    return answer["kv_transfer_params"]


@pytest.fixture(scope="session")
def gguf() -> str:
    """Return where the weights are (STEELYARD_GGUF); without them tests are skipped here and fail in CI."""
    path = os.environ.get("STEELYARD_GGUF")
    problem = None
    if find_spec("llama_cpp") is None:
        problem = "llama-cpp-python is not installed"
    elif not path or not Path(path).exists():
        problem = f"STEELYARD_GGUF={path} names no weights"
    if problem is None:
        return str(path)
    if os.environ.get("CI") == "true":
        pytest.fail(f"the real model must be tested in CI: {problem}")
    pytest.skip(f"NOT TESTED with a real model: {problem}")

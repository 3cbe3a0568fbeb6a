"""A real gateway process on loopback, with its settings, pods file, log and metrics."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gateway_calls import MODEL, metric_sum, request


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


SETTINGS: dict[str, Any] = {
    "service": "chat",
    "namespace": "team-a",
    "servedName": MODEL,
    "topology": "Disaggregated",
    "objectives": {"ttftSeconds": 5.0, "tpotSeconds": 1.0},
    "requestTimeoutSeconds": 20,
    "stallTimeoutSeconds": 10,
    "gateways": 1,
    "prefillPrior": {"a": 0.01, "b": 0.0001, "c": 0.0},
    "decodeSlots": 64,
}


class GatewayProcess:
    """A real gateway process on loopback."""

    def __init__(
        self,
        pods: list[dict[str, Any]] | None,
        settings: dict[str, Any] | None = None,
        *,
        args: tuple[str, ...] = (),
        env: dict[str, str] | None = None,
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="gateway-test-"))
        self.settings = {**SETTINGS, **(settings or {})}
        self.config, self.pods_file = self.folder / "gateway.json", self.folder / "pods.json"
        self.config.write_text(json.dumps(self.settings))
        self.port, self.metrics_port = free_port(), free_port()
        self._log = (self.folder / "log").open("wb")
        command = [
            sys.executable,
            "-m",
            "steelyard.gateway.main",
            "--config",
            str(self.config),
            "--port",
            str(self.port),
        ]
        command += ["--metrics-port", str(self.metrics_port), "--host", "127.0.0.1", "--drain-delay", "0.2", *args]
        if pods is not None:
            self.write_pods(pods)
            command += ["--pods", str(self.pods_file)]
        self.process = subprocess.Popen(command, stderr=self._log, env={**os.environ, **(env or {})})
        try:
            wait_until(lambda: self.admin("/live")[0] == 200, seconds=60)
        except AssertionError:
            self.stop()
            raise

    def write_pods(self, pods: list[dict[str, Any]]) -> None:
        fresh = self.pods_file.with_suffix(".new")
        fresh.write_text(json.dumps(pods))
        fresh.replace(self.pods_file)

    def write_settings(self, **changes: Any) -> None:
        self.settings = {**self.settings, **changes}
        fresh = self.config.with_suffix(".new")
        fresh.write_text(json.dumps(self.settings))
        fresh.replace(self.config)

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def admin(self, path: str) -> tuple[int, bytes]:
        try:
            answer = request(self.metrics_port, "GET", path)
        except OSError:
            return 0, b""
        return answer.status, answer.body

    def metric(self, name: str, **labels: str) -> float:
        return metric_sum(self.admin("/metrics")[1], name, labels)

    def ready(self) -> bool:
        return self.admin("/ready")[0] == 200

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._log.close()
        return self.process.returncode


def wait_until(fact: Callable[[], object], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not fact():
        if time.monotonic() > end:
            raise AssertionError("did not become true in time")
        time.sleep(0.02)


@contextlib.contextmanager
def gateway(
    pods: list[dict[str, Any]] | None, settings: dict[str, Any] | None = None, **more: Any
) -> Iterator[GatewayProcess]:
    process = GatewayProcess(pods, settings, **more)
    try:
        yield process
    finally:
        process.stop()

"""Real engine processes (simulated backend) over loopback, for a gateway to use."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from gateway_calls import Answer, metric_sum, request
from gateway_process import GatewayProcess, free_port

MODEL = "sim"
PROFILE = {
    "startupSeconds": 0.0,
    "kvTokens": 65536,
    "prefill": {"a": 0.005, "b": 1.5e-5, "c": 4.2e-10},
    "decode": {"g0": 0.004, "g1": 0.0, "g2": 0.0, "g3": 0.0},
    "transferBytesPerSecond": 2.5e10,
    "bytesPerToken": 64,
}
SETTINGS = {"servedName": MODEL, "decodeSlots": 16, "contextLength": 4096}


class Engine:
    """One engine process; `times` changes fields of its profile, `flags` are further words of its command line."""

    def __init__(self, name: str, times: dict[str, Any] | None = None, *flags: str) -> None:
        self.name = name
        self.port, self.kv_port = free_port(), free_port()
        folder = Path(tempfile.mkdtemp(prefix="engine-test-"))
        profile = folder / "profile.json"
        profile.write_text(json.dumps(PROFILE | (times or {})))
        script = Path(sys.executable).with_name("steelyard-engine")
        command = [str(script), "--backend", "simulated", "--served-name", MODEL, "--profile", str(profile)]
        command += ["--port", str(self.port), "--kv-port", str(self.kv_port), "--context-length", "4096"]
        command += ["--advertise-host", "127.0.0.1", *flags]
        self.log = (folder / "log").open("wb")
        self.process = subprocess.Popen(command, stderr=self.log, env={**os.environ, "POD_IP": "127.0.0.1"})

    def up(self) -> bool:
        try:
            return request(self.port, "GET", "/health").status == 200
        except OSError:
            return False

    def metric(self, name: str, **labels: str) -> float:
        return metric_sum(request(self.port, "GET", "/metrics").body, name, labels)

    def pod(self, role: str, **more: Any) -> dict[str, Any]:
        return {"name": self.name, "address": "127.0.0.1", "port": self.port, "role": role, "kvGroup": "g", **more}

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stand_still(self) -> None:
        """Stop the process: its kernel goes on accepting connections, nobody answers them."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        self.log.close()


def listed(engines: list[Engine], roles: str = "PPDD") -> list[dict[str, Any]]:
    return [e.pod({"P": "prefill", "D": "decode"}[r]) for e, r in zip(engines, roles, strict=True)]


def body_of(path: str = "/v1/completions", **fields: Any) -> bytes:
    body = {"model": MODEL, "max_tokens": 8, **fields}
    if "chat" in path:
        body.setdefault("messages", [{"role": "user", "content": "hello there"}])
    else:
        body.setdefault("prompt", "hello there")
    return json.dumps(body).encode()


def ask(process: GatewayProcess, path: str = "/v1/completions", **fields: Any) -> Answer:
    return request(process.port, "POST", path, body_of(path, **fields), timeout=60)


def outcome(process: GatewayProcess, name: str) -> float:
    return process.metric("steelyard_gateway_requests_total", outcome=name)

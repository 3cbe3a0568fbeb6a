"""What is compared: our gateway, `vllm-router`, and no gateway at all.

Each gateway gets the same engines, four for prefill and four for decode, all of them ports of one stub process.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from bench.gateway import router
from bench.gateway.interpreter import interpreter

PREFILL, DECODE = 4, 4


@dataclass(frozen=True)
class Ports:
    """Where everything of a run listens, on loopback."""

    prefill: tuple[int, ...]
    decode: tuple[int, ...]
    gateway: int
    admin: int

    @property
    def engines(self) -> tuple[int, ...]:
        """All of the stub's."""
        return self.prefill + self.decode


@dataclass(frozen=True)
class Subject:
    """One thing to measure. `command` None: the load client calls the engines itself. `ready` is a URL that answers 200
    once it serves."""

    name: str
    version: str
    command: tuple[str, ...] | None
    ready: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


GATEWAY_SETTINGS = {
    "service": "bench",
    "namespace": "bench",
    "servedName": "bench",
    "objectives": {"ttftSeconds": 5.0, "tpotSeconds": 1.0},
    "prefillPrior": {"a": 0.0005, "b": 1e-7, "c": 0.0},
    "decodeSlots": 1000,
    "limits": {"concurrent": 4000},
}
"""Queue, order, prefix affinity, retries, estimates and metrics are all on: these are the defaults."""


def steelyard(ports: Ports, folder: Path) -> Subject:
    """Our gateway; its files go into `folder`."""
    roles = {"prefill": ports.prefill, "decode": ports.decode}
    pods = [
        {"name": f"{role}-{port}", "address": "127.0.0.1", "port": port, "role": role}
        for role, some in roles.items()
        for port in some
    ]
    (folder / "gateway.json").write_text(json.dumps(GATEWAY_SETTINGS))
    (folder / "pods.json").write_text(json.dumps(pods))
    python = interpreter()
    command = [
        python.path, "-m", "steelyard.gateway.main", "--config", str(folder / "gateway.json"),
        "--pods", str(folder / "pods.json"), "--host", "127.0.0.1", "--port", str(ports.gateway),
        "--metrics-port", str(ports.admin), "--drain-delay", "0",
    ]  # fmt: skip
    ready = f"http://127.0.0.1:{ports.admin}/ready"
    return Subject("steelyard", version("steelyard"), tuple(command), ready, python.environment)


def vllm_router(ports: Ports) -> Subject:
    """The rival, installed on first use; round robin, its cheapest policy."""
    engines = [
        word
        for role, some in (("--prefill", ports.prefill), ("--decode", ports.decode))
        for port in some
        for word in (role, f"http://127.0.0.1:{port}")
    ]
    python = interpreter()
    command = [
        python.path, "-m", "vllm_router.launch_router", "--host", "127.0.0.1", "--port", str(ports.gateway),
        "--prometheus-port", str(ports.admin), "--worker-startup-check-interval", "1", "--policy", "round_robin",
        "--vllm-pd-disaggregation", "--kv-connector", "nixl", *engines, "--log-level", "error",
    ]  # fmt: skip
    environment = {**python.environment, "PYTHONPATH": str(router.installed())}
    ready = f"http://127.0.0.1:{ports.gateway}/readiness"
    return Subject("vllm-router", router.VERSION, tuple(command), ready, environment)


def direct() -> Subject:
    """No gateway: the floor under every latency."""
    return Subject("direct", "", None)

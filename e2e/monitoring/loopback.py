"""Prometheus as a process of this machine, on the loopback address: for what needs the program and no cluster."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from e2e.cluster import build
from e2e.cluster.programs import PROMETHEUS
from e2e.errors import ToolError

READY_SECONDS = 120


@contextmanager
def serving(
    folder: Path, config: Mapping[str, Any] | None = None, web: Mapping[str, Any] | None = None
) -> Iterator[int]:
    """Run it with a configuration, and a web configuration (who may enter); gives its port once it listens.

    The program is built when the cache lacks it. Raises `ToolError` with its log where it ends before.
    """
    program = build.ensure(Console(file=sys.__stderr__), [PROMETHEUS])[PROMETHEUS.name]
    (folder / "prometheus.yml").write_text(yaml.safe_dump({"global": {}, **(config or {})}))
    (folder / "web.yml").write_text(yaml.safe_dump(web or {}))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    command = [
        *(str(program), f"--config.file={folder / 'prometheus.yml'}", f"--web.config.file={folder / 'web.yml'}"),
        *(f"--storage.tsdb.path={folder / 'store'}", f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"),
    ]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            _await_listener(port, process, folder / "log")
            yield port
        finally:
            process.terminate()


def _await_listener(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if process.poll() is not None or time.monotonic() > deadline:
            raise ToolError(f"Prometheus does not listen within {READY_SECONDS} s; its log:\n{log.read_text()}")
        time.sleep(0.1)

"""From the start of the process to Ready, beside what llama.cpp alone needs to be able to compute."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from bench.engine.seen import Start
from bench.gateway.processes import free_ports, resident_bytes
from bench.operator.usage import cpu_seconds
from e2e.errors import ToolError

_READY_SECONDS = 180.0
_STOP_SECONDS = 90.0
_BARE = """
import sys, pathlib, resource
from bench.engine.bare import Bare, silence
kept = silence()
Bare(pathlib.Path(sys.argv[1]), 20480, 16, ours=True).prefill([[1000]])
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime)
"""


def starts(model: Path, count: int) -> list[Start]:
    """Start the engine so many times, and the bare loop in turn with it; the weights are in the page cache."""
    found = [_start(model) for _ in range(count + 1)]
    return found[1:]


def _start(model: Path) -> Start:
    port, kv_port = free_ports(2)
    command = [sys.executable, "-c", "from steelyard_engine.main import main; main()", "--backend", "llama"]
    command += ["--served-name", "bench", "--model", str(model), "--port", str(port), "--kv-port", str(kv_port)]
    with tempfile.TemporaryFile() as log:
        began = time.monotonic()
        with subprocess.Popen(command, stdout=log, stderr=log) as process:
            try:
                while not _ready(port):
                    if process.poll() is not None or time.monotonic() - began > _READY_SECONDS:
                        log.seek(0)
                        raise ToolError(f"the engine did not get ready: {log.read()[-1500:].decode(errors='replace')}")
                    time.sleep(0.02)
                seconds = time.monotonic() - began
                cpu, resident = cpu_seconds(process.pid), resident_bytes(process.pid)
            finally:
                process.terminate()
                process.wait(_STOP_SECONDS)
    done = subprocess.run([sys.executable, "-c", _BARE, str(model)], capture_output=True, text=True, check=True)
    return Start(seconds, cpu, resident, float(done.stdout))


def _ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False

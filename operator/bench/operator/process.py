"""The operator as a process of its own: started as in its pod, and read from outside."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from bench.gateway.interpreter import interpreter
from bench.gateway.processes import free_ports, resident_bytes
from bench.operator.control_plane import SYSTEM
from bench.operator.usage import cpu_seconds
from e2e.errors import ToolError

START_SECONDS = 120.0
STOP_SECONDS = 40.0
_SAMPLE = re.compile(r"^(steelyard_[a-z_]+?)(?:_total)?(?:{([^}]*)})? (\S+)$", re.M)


@dataclass(frozen=True)
class Counted:
    """What the operator says of itself since it started. `writes` are of children and status, `bytes` go both ways."""

    reconciles: float
    failed: float
    calls: float
    bytes: float
    writes: float
    oldest_wait: float  # seconds that the longest-overdue service has waited


@dataclass(frozen=True)
class Operator:
    """A running operator."""

    pid: int
    port: int
    log: Path

    def cpu_seconds(self) -> float:
        """All its threads' time, in steps of a hundredth."""
        return cpu_seconds(self.pid)

    def resident_mib(self) -> float:
        return resident_bytes(self.pid) / 2**20

    def peak_mib(self) -> float:
        """The most that was resident since it started."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024

    def counted(self) -> Counted:
        """Read its metrics; that costs it CPU, so not within a window whose CPU counts."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=60) as answer:
            return counted(answer.read().decode())


def counted(text: str) -> Counted:
    """Sum up what the metrics say."""
    sums: dict[str, float] = {}
    for name, labels, value in _SAMPLE.findall(text):
        key = "failed" if name == "steelyard_reconcile" and 'result="failed"' in labels else name
        sums[key] = sums.get(key, 0.0) + float(value)
    return Counted(
        reconciles=sums.get("steelyard_reconcile", 0.0) + sums.get("failed", 0.0),
        failed=sums.get("failed", 0.0),
        calls=sums.get("steelyard_api_requests", 0.0),
        bytes=sums.get("steelyard_api_bytes", 0.0),
        writes=sums.get("steelyard_child_writes", 0.0) + sums.get("steelyard_status_writes", 0.0),
        oldest_wait=sums.get("steelyard_queue_oldest_wait_seconds", 0.0),
    )


@contextmanager
def operator(kubeconfig: Path, folder: Path, resync_seconds: int) -> Iterator[Operator]:
    """Run it; ToolError with its log's end when it does not come up, or ended before it was stopped."""
    (port,) = free_ports(1)
    settings = {"images": {"gateway": "bench/gateway:1", "engine": "bench/engine:1"}, "resyncSeconds": resync_seconds}
    config, log = folder / "operator.yaml", folder / "operator.log"
    config.write_text(yaml.safe_dump(settings))
    python = interpreter()
    environment = {**python.environment, "KUBECONFIG": str(kubeconfig), "POD_NAME": "bench", "POD_NAMESPACE": SYSTEM}
    start = "from steelyard.run.main import main; main()"  # what the console script of the image does
    command = [python.path, "-c", start, "--config", str(config), "--port", str(port)]
    with log.open("ab") as out, subprocess.Popen(command, stdout=out, stderr=out, env=environment) as process:
        try:
            _wait_until_up(process, port, log)
            yield Operator(process.pid, port, log)
            if process.poll() is not None:
                raise ToolError(f"the operator ended with {process.returncode}: {_end_of(log)}")
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait_until_up(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/live", timeout=2):
                return
        except OSError:
            time.sleep(0.05)
    raise ToolError(f"the operator did not start: {_end_of(log)}")


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace").strip()[-1500:]


def imported_mib() -> dict[str, float]:
    """Resident memory of the interpreter alone, with kopf, and with all that the operator imports."""
    python = interpreter()
    said = {}
    for name, line in (("python", "pass"), ("kopf", "import kopf"), ("operator", "import steelyard.run.main")):
        code = f"{line}; print(open('/proc/self/statm').read().split()[1])"
        done = subprocess.run(
            [python.path, "-c", code], env=python.environment, capture_output=True, text=True, check=True
        )
        said[name] = int(done.stdout) * os.sysconf("SC_PAGESIZE") / 2**20
    return said


def one_reconcile(kubeconfig: Path, namespace: str, name: str, count: int) -> dict[str, dict[str, float]]:
    """Reconcile one unchanged service so many times in a process of its own, see `unchanged.py`."""
    python = interpreter()
    path = os.pathsep.join((str(Path(__file__).parents[2]), python.environment["PYTHONPATH"]))
    environment = {**python.environment, "PYTHONPATH": path}
    command = [python.path, "-m", "bench.operator.unchanged", str(kubeconfig), namespace, name, str(count)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        raise ToolError(f"the reconcile of {namespace}/{name} failed: {done.stderr.strip()[-1500:]}")
    return dict(json.loads(done.stdout))

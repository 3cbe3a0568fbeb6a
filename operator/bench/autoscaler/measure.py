"""One size of fleet: its store, a Prometheus over it, and ticks of the real autoscaler whose process time is counted."""

from __future__ import annotations

import gc
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from steelyard.api.service import InferenceService
from steelyard.catalog.accelerators import ACCELERATORS
from steelyard.decide.queue.windows import WINDOW_SECONDS, WINDOWS
from steelyard.decide.scale.signals import Phase, Replica, StartUp
from steelyard.observe.answers import Keys, Vector
from steelyard.observe.client import Api, Body
from steelyard.observe.demand import Windows, parse
from steelyard.observe.prometheus import Prometheus, Query
from steelyard.observe.replicas import Engine, Gateway
from steelyard.observe.resources import Resource
from steelyard.observe.signals import Pods
from steelyard.run.autoscaler import Autoscaler
from steelyard.run.fleet import Fleet as Views
from steelyard.run.fleet import View

from bench.autoscaler.series import Fleet, write
from e2e.errors import ToolError

TICK_SECONDS = 5.0
WARM_TICKS = 50  # what is remembered of a service reaches four minutes back
READY_SECONDS = 120
QUERY_SECONDS = 60.0
QUARTERS = 4
MIB = 1024 * 1024


@dataclass(frozen=True)
class Cost:
    """Of one size: CPU seconds of a tick (the operator's, and Prometheus's for its queries), queries, and memory.

    Memory in MiB: of the process before it knows a service; what the views of all services add, which reconciles keep; what
    the autoscaler remembers, from the first tick to the end of those to warm up; what a tick takes on top and gives back, at
    its peak; and what is there after each quarter of the counted ticks.
    """

    services: int
    pods: int
    series: int
    ticks: int
    cpu_seconds: float
    cpu_per_1000_pods: float
    prometheus_cpu_seconds: float
    wall_seconds: float
    queries: int
    bare_mib: float
    views_mib: float
    remembered_mib: float
    tick_mib: float
    quarters_mib: tuple[float, ...]

    @property
    def kept_bytes_per_pod(self) -> float:
        """What stays from tick to tick, by engine pods."""
        return (self.views_mib + self.remembered_mib) * MIB / self.pods


class _Then(Prometheus):
    """Asks as of the moment that the store ends."""

    def __init__(self, url: str, at: float) -> None:
        super().__init__(url, timeout_seconds=QUERY_SECONDS)
        self._at = at
        self.asked = 0

    def ask(self, query: Query, keys: Keys | None = None) -> Vector:
        self.asked += 1
        return super().ask(query, keys)

    def _form(self, query: Query) -> dict[str, str]:
        return super()._form(query) | {"time": f"{self._at:.3f}"}


class _Nowhere(Api):
    """Takes every write and keeps none."""

    def __init__(self) -> None:
        self.writes = 0

    def apply(
        self, resource: Resource, body: Body, manager: str, subresource: str | None = None, rehearse: bool = False
    ) -> Body:
        self.writes += 1
        return {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.writes)}}

    def create(self, resource: Resource, body: Body, manager: str) -> Body:
        self.writes += 1
        return body


def measure(fleet: Fleet, ticks: int, programs: dict[str, Path]) -> Cost:
    """Build the store, start Prometheus, let the autoscaler tick, and count."""
    end = int(time.time()) - 600
    with TemporaryDirectory(prefix="steelyard-tick-") as scratch:
        folder = Path(scratch)
        text = folder / "series.txt"
        with text.open("w") as out:
            series = write(fleet, end, out)
        command = [
            str(programs["promtool"]),
            "tsdb",
            "create-blocks-from",
            "openmetrics",
            str(text),
            str(folder / "store"),
        ]
        subprocess.run(command, check=True, capture_output=True)
        text.unlink()
        with _prometheus(programs["prometheus"], folder) as (url, process):
            bare = _resident()
            prometheus = _Then(url, end + 1.0)
            scaler = Autoscaler(_Nowhere(), _views(fleet, end), prometheus.look, _Demand(end), "bench", TICK_SECONDS)
            viewed = _resident()
            for tick in range(WARM_TICKS):
                scaler.tick(end + TICK_SECONDS * tick)
            warm = _resident()
            _forget_peak()
            asked, cpu, theirs, wall = prometheus.asked, time.process_time(), _cpu(process.pid), time.monotonic()
            quarters = []
            for tick in range(1, ticks + 1):
                scaler.tick(end + TICK_SECONDS * (WARM_TICKS + tick - 1))
                if tick * QUARTERS % ticks < QUARTERS:
                    quarters.append(round(_resident(), 1))
            spent = (time.process_time() - cpu) / ticks
            pods = fleet.services * fleet.pods
            return Cost(
                services=fleet.services,
                pods=pods,
                series=series,
                ticks=ticks,
                cpu_seconds=round(spent, 3),
                cpu_per_1000_pods=round(1000 * spent / pods, 4),
                prometheus_cpu_seconds=round((_cpu(process.pid) - theirs) / ticks, 3),
                wall_seconds=round((time.monotonic() - wall) / ticks, 3),
                queries=round((prometheus.asked - asked) / ticks),
                bare_mib=round(bare, 1),
                views_mib=round(viewed - bare, 1),
                remembered_mib=round(warm - viewed, 1),
                tick_mib=round(_resident("VmHWM") - warm, 1),
                quarters_mib=tuple(quarters),
            )


class _Demand:
    """The windows of every gateway, read from text each time; the exchange itself is left out."""

    def __init__(self, end: float) -> None:
        tokens = ",".join(str(100 * (number % 7)) for number in range(WINDOWS))
        self._text = f'{{"windowSeconds":{WINDOW_SECONDS},"end":{end},"uncachedTokens":[{tokens}]}}'.encode()

    def __call__(self, address: str) -> Windows | None:
        return parse(self._text)


def _views(fleet: Fleet, end: float) -> Views:
    views = Views()
    for number in range(fleet.services):
        namespace, name = fleet.service(number)
        body: dict[str, Any] = {
            "apiVersion": "serving.steelyard.dev/v1alpha1",
            "kind": "InferenceService",
            "metadata": {"namespace": namespace, "name": name, "uid": name, "generation": 1},
        }
        bounds = {"replicas": {"min": 1, "max": 4 * fleet.pods}}
        shape = {"parameters": 8_000_000_000, "layers": 32, "hiddenSize": 4096, "attentionHeads": 32, "kvHeads": 8}
        spec = {
            "model": {"uri": "hf://example/model", "shape": shape},
            "engine": {"name": "simulated"},
            "accelerator": "h200",
            "objectives": {"timeToFirstToken": "500ms", "timePerOutputToken": "50ms"},
            "autoscaling": {"mode": "Recommend"},
            "prefill": bounds,
            "decode": bounds,
        }
        service = InferenceService.read({**body, "spec": spec})
        engines = tuple(_engine(pod, role, end) for pod, role in fleet.engines(number))
        gateways = tuple(Gateway(pod, "10.0.0.1", end - 3600, f"uid-{pod}") for pod in fleet.gateways(number))
        asked = {role: sum(e.replica.pool == role for e in engines) for role in ("prefill", "decode")}
        pods = Pods(namespace, name, engines, gateways, asked)
        views.put((namespace, name), View({**body, "status": {}}, service, ACCELERATORS, pods))
    return views


def _engine(pod: str, role: str, end: float) -> Engine:
    start = StartUp(1.0, 20.0, 20.0)
    return Engine(Replica(pod, role, role, "kv", Phase.READY, end - 3600, start=start), pod, end - 3650, marked=False)


@contextmanager
def _prometheus(program: Path, folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    config = folder / "prometheus.yml"
    config.write_text("global: {}\n")
    port = 19_190
    command = [str(program), f"--config.file={config}", f"--storage.tsdb.path={folder / 'store'}"]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--storage.tsdb.retention.time=30d", "--log.level=error"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        url = f"http://127.0.0.1:{port}"
        try:
            _wait(url, process)
            yield url, process
        finally:
            process.terminate()


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            assert process.stderr is not None
            raise ToolError(f"Prometheus ended: {process.stderr.read().decode()[-500:]}")
        try:
            urllib.request.urlopen(f"{url}/-/ready", timeout=2)
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise ToolError(f"Prometheus was not ready within {READY_SECONDS} s")


def _resident(field: str = "VmRSS") -> float:
    """MiB of this process in memory now, or the most there were since `_forget_peak`; rubbish is collected first."""
    if field == "VmRSS":
        gc.collect()
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) * 1024 / MIB


def _forget_peak() -> None:
    """Let the kernel count the peak anew."""
    Path("/proc/self/clear_refs").write_text("5")


def _cpu(pid: int) -> float:
    """CPU seconds of a process, from the kernel's count in hundredths."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100

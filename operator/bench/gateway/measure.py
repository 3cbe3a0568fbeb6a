"""One repeat of one subject: a fresh engine stub and a fresh gateway, every scenario, and the figures that come of it."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.gateway.processes import Cores, engine_stats, free_ports, load, resident_bytes, running
from bench.gateway.scenarios import Scenario
from bench.gateway.subjects import DECODE, PREFILL, Ports, Subject

Loaded = dict[str, Any]


@dataclass(frozen=True)
class Programs:
    """The compiled C programs."""

    engine: Path
    load: Path


@dataclass(frozen=True)
class Repeat:
    """What one repeat of one subject showed. `loads` maps a scenario to what the load client printed, `faults` says what
    makes the repeat worthless; memory is in bytes, None without a gateway. `load_average` is the machine's at the
    beginning, `others` the share of the subject's core that went to processes other than the subject."""

    subject: str
    loads: dict[str, Loaded]
    engine: dict[str, int]
    faults: tuple[str, ...]
    rss_start: int | None
    rss_after: int | None
    load_average: float
    others: float


def repeat(
    make: Callable[[Ports, Path], Subject],
    todo: tuple[Scenario, ...],
    programs: Programs,
    cores: Cores,
    step: Callable[[Subject, Scenario], None],
) -> Repeat:
    """Measure a subject once; `step` is told of each scenario before it runs."""
    average = os.getloadavg()[0]
    ports = _ports()
    with tempfile.TemporaryDirectory(prefix="steelyard-bench-") as name:
        folder = Path(name)
        subject = make(ports, folder)
        engine = (str(programs.engine), *map(str, ports.engines))
        ready = f"http://127.0.0.1:{ports.engines[0]}/health"
        with running(engine, cores.engine, ready, folder / "engine.log"):
            if subject.command is None:
                loads, memory, others = _loads(todo, programs, cores, ports.engines[0], 0, lambda s: step(subject, s))
            else:
                log = folder / "subject.log"
                with running(subject.command, cores.subject, subject.ready, log, subject.environment or None) as pid:
                    loads, memory, others = _loads(
                        todo, programs, cores, ports.gateway, pid, lambda s: step(subject, s)
                    )
            stats = engine_stats(ports.engines[0])
    return Repeat(subject.name, loads, stats, faults(loads, stats), *memory, average, others)


def _loads(
    todo: tuple[Scenario, ...], programs: Programs, cores: Cores, port: int, pid: int, step: Callable[[Scenario], None]
) -> tuple[dict[str, Loaded], tuple[int | None, int | None], float]:
    """Run every scenario against `port`; `pid` 0 means that the client calls the engines itself."""
    start = resident_bytes(pid) if pid else None
    loads: dict[str, Loaded] = {}
    elsewhere, began = 0.0, time.monotonic()
    for scenario in todo:
        step(scenario)
        words = (f"port={port}", f"pid={pid}", f"direct={int(not pid)}", *scenario.settings())
        busy, own = _busy_seconds(cores.subject), _cpu_seconds(pid)
        loads[scenario.name] = load(programs.load, cores.client, words, scenario.duration)
        elsewhere += _busy_seconds(cores.subject) - busy - (_cpu_seconds(pid) - own)
    others = max(0.0, elsewhere) / (time.monotonic() - began)
    return loads, (start, resident_bytes(pid) if pid else None), round(others, 3)


def faults(loads: dict[str, Loaded], engine: dict[str, int]) -> tuple[str, ...]:
    """Say why figures must not be trusted: a request lost, failed or never answered, or decode without hand-off."""
    found = []
    for name, seen in loads.items():
        counted = seen["completed"] + seen["failed"] + seen["unfinished"]
        if counted != seen["issued"]:
            found.append(f"{name}: {seen['issued']} requests issued, {counted} accounted for")
        if seen["failed"]:
            found.append(f"{name}: {seen['failed']} requests failed, the first with: {seen['first_failure']}")
        if seen["unfinished"]:
            found.append(f"{name}: {seen['unfinished']} requests were never answered")
        if not seen["window_completed"] and not seen["window_events"]:
            found.append(f"{name}: nothing was answered in the measured window")
    if engine["handoffs"] != engine["decodes"] or engine["prefills"] < engine["decodes"]:
        found.append(f"decode calls without a prefill and its hand-off: {engine}")
    return tuple(found)


def _ports() -> Ports:
    found = free_ports(PREFILL + DECODE + 2)
    return Ports(found[:PREFILL], found[PREFILL : PREFILL + DECODE], found[-2], found[-1])


def _busy_seconds(core: int) -> float:
    """What a core has worked since the machine started, for whomever."""
    for line in Path("/proc/stat").read_text().splitlines():
        name, *ticks = line.split()
        if name == f"cpu{core}":
            user, nice, system, _idle, _waiting, *interrupts = map(int, ticks[:8])
            return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")
    raise LookupError(f"/proc/stat has no core {core}")


def _cpu_seconds(pid: int) -> float:
    """What a process has worked since it started; 0 for no process."""
    if not pid:
        return 0.0
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")

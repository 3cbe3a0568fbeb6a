"""One fleet size: services created, the operator started anew, left alone, and changes made under it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.operator import fleet
from bench.operator.control_plane import ControlPlane
from bench.operator.fleet import Key
from bench.operator.process import Operator, one_reconcile, operator
from bench.operator.yardstick import beside
from e2e.errors import ToolError

RESYNC_SECONDS = 300  # the default; longer than all that is measured of one process but the start
CHANGES = 20
PACE_SECONDS = 1.0  # between two changes: the operator folds what comes within 0.3 s
AGAIN_SECONDS = 5.0  # between two changes of one service, so that all that follows from one is done before the next
MADE = 20  # services that the operator makes itself at each size, at most
IDLE_SECONDS = 60.0
UNCHANGED = 100
STEP_SECONDS, QUIET_STEPS, QUIET_SHARE = 0.5, 6, 0.04  # at rest: so many steps with less than this share of a core
SETTLE_SECONDS = 3600.0


@dataclass(frozen=True)
class Work:
    """What was spent in a window: by the operator, and by the API server for it and everybody else."""

    seconds: float
    cpu_seconds: float
    server_cpu_seconds: float
    calls: float  # as the API server counts them, watches included
    bytes: float
    reconciles: float
    writes: float
    yardstick_ms: float  # CPU of a fixed piece of work meanwhile, see `yardstick.py`


@dataclass(frozen=True)
class AtSize:
    """The figures of one fleet size. `created` is of `added` services that the operator made; `changes` are `CHANGES` each."""

    services: int
    added: int
    created: Work
    start: Work
    rss_started_mib: float
    rss_after_mib: float
    rss_peak_mib: float
    idle: Work
    changes: dict[str, Work]
    unchanged: dict[str, dict[str, float]]  # of the look after an event, and the periodic one


def at_size(
    plane: ControlPlane, count: int, known: int, per_namespace: int, folder: Path, say: Callable[[str], None]
) -> AtSize:
    """Grow the fleet from `known` to `count` services and measure."""
    wanted = fleet.keys(count, per_namespace)
    new = wanted[known:]
    made, furnished = new[:MADE], new[MADE:]
    say(f"{count} services: making them")
    fleet.create(plane.api, furnished)
    fleet.furnish(plane.api, furnished)
    fleet.play_controllers(plane.api, furnished)
    with operator(plane.operator, folder, RESYNC_SECONDS) as running:
        rest(running, count - len(made))
        created = window(plane, running, lambda: fleet.create(plane.api, made))
        fleet.play_controllers(plane.api, made)
        rest(running, count)
    say(f"{count} services: starting the operator")
    calls, server, began = plane.calls(), plane.server_cpu_seconds(), time.monotonic()
    with operator(plane.operator, folder, RESYNC_SECONDS) as running:
        with beside() as yardstick:
            quiet_since = rest(running, count)
        spent = running.cpu_seconds(), plane.server_cpu_seconds() - server
        rss, seen = running.resident_mib(), running.counted()
        calls = plane.calls() - calls
        start = Work(quiet_since - began, *spent, calls, seen.bytes, seen.reconciles, seen.writes, yardstick.ms)
        say(f"{count} services: at rest")
        idle = window(plane, running, lambda: time.sleep(IDLE_SECONDS), settle=False)
        changes = {}
        for name, change in CHANGE_KINDS.items():
            say(f"{count} services: {name}")
            rest(running)
            changes[name] = window(plane, running, paced(change, plane, wanted))
        after, peak = running.resident_mib(), running.peak_mib()
    say(f"{count} services: one that does not change")
    unchanged = one_reconcile(plane.operator, wanted[0].namespace, wanted[0].name, UNCHANGED)
    return AtSize(count, len(made), created, start, rss, after, peak, idle, changes, unchanged)


def paced(
    change: Callable[[ControlPlane, Key, int], None], plane: ControlPlane, wanted: Sequence[Key]
) -> Callable[[], None]:
    """Make `CHANGES` changes, each at its time, to services spread over the fleet, each of which is changed twice, or more
    often where there are few."""
    places = min(CHANGES // 2, len(wanted))
    pace = max(PACE_SECONDS, AGAIN_SECONDS / places)

    def act() -> None:
        began = time.monotonic()
        for number in range(CHANGES):
            change(plane, wanted[number % places * len(wanted) // places], number // places)
            time.sleep(max(0.0, began + (number + 1) * pace - time.monotonic()))

    return act


def _new_objective(plane: ControlPlane, key: Key, turn: int) -> None:
    fleet.change(plane.api, key, 100 + turn)


def _pod(plane: ControlPlane, key: Key, turn: int) -> None:
    fleet.set_ready(plane.api, fleet.pod_of_prefill(key), turn % 2 == 1)


CHANGE_KINDS: dict[str, Callable[[ControlPlane, Key, int], None]] = {"spec": _new_objective, "pod": _pod}


def window(plane: ControlPlane, running: Operator, act: Callable[[], None], settle: bool = True) -> Work:
    """Do something and wait until the operator has done all that follows from it; what reading the counters costs is outside."""
    seen, calls = running.counted(), plane.calls()
    cpu, server, began = running.cpu_seconds(), plane.server_cpu_seconds(), time.monotonic()
    with beside() as yardstick:
        act()
        if settle:
            rest(running)
    cpu, server = running.cpu_seconds() - cpu, plane.server_cpu_seconds() - server
    seconds = time.monotonic() - began
    after, calls = running.counted(), plane.calls() - calls
    if after.failed > seen.failed:
        raise ToolError(
            f"{after.failed - seen.failed:.0f} reconciles failed; the operator's log: {running.log.read_text()[-1500:]}"
        )
    return Work(
        seconds,
        cpu,
        server,
        calls,
        after.bytes - seen.bytes,
        after.reconciles - seen.reconciles,
        after.writes - seen.writes,
        yardstick.ms,
    )


def rest(running: Operator, looked_at: int = 0) -> float:
    """Wait until the operator does next to nothing, nothing is due, and so many services were looked at; give since when.

    It may only seem to be at rest, because it waits for an answer of the API server on a busy machine; so it is asked then.
    """
    quiet, last, deadline = 0, running.cpu_seconds(), time.monotonic() + SETTLE_SECONDS
    while True:
        if time.monotonic() > deadline:
            raise ToolError(f"the operator did not come to rest within {SETTLE_SECONDS:.0f} s")
        time.sleep(STEP_SECONDS)
        now = running.cpu_seconds()
        quiet = quiet + 1 if now - last <= QUIET_SHARE * STEP_SECONDS else 0
        last = now
        if quiet >= QUIET_STEPS:
            since = time.monotonic() - QUIET_STEPS * STEP_SECONDS
            seen = running.counted()
            if not seen.oldest_wait and seen.reconciles >= looked_at:
                return since
            quiet, last = 0, running.cpu_seconds()

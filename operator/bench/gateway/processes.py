"""The processes of a run: pinned to cores, waited for, stopped, and asked what they cost."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.errors import ToolError

START_SECONDS = 30.0
STOP_SECONDS = 10.0
_FIRST = ("nice", "-n", "-20")  # before whatever else the machine does; where that is not allowed it goes on without


@dataclass(frozen=True)
class Cores:
    """Who runs where: the subject has a core to itself as long as there are two."""

    subject: int
    engine: int
    client: int

    @staticmethod
    def of_this_machine() -> Cores:
        """The first one, two or three cores that this process may use."""
        allowed = sorted(os.sched_getaffinity(0))
        return Cores(allowed[0], allowed[min(1, len(allowed) - 1)], allowed[min(2, len(allowed) - 1)])


def free_ports(count: int) -> tuple[int, ...]:
    """Ports of loopback that nobody listens on now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return tuple(int(one.getsockname()[1]) for one in sockets)


@contextmanager
def session_first() -> Iterator[None]:
    """Put this session before others where the kernel shares a core between sessions: nice then counts within one only."""
    group = Path("/proc/self/autogroup")
    try:
        before = group.read_text().rpartition(" ")[2].strip()
        group.write_text("-20")
    except OSError:
        yield  # the kernel does not group, or does not let us
        return
    try:
        yield
    finally:
        group.write_text(before)


@contextmanager
def running(
    command: tuple[str, ...], core: int, ready: str, log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[int]:
    """The pid of a process on `core` that answers 200 at `ready`; stopped at the end. ToolError when it does not start."""
    pinned = [*_FIRST, "taskset", "-c", str(core), *command]  # both replace themselves: the pid is the command's
    with log.open("wb") as out, subprocess.Popen(pinned, stdout=out, stderr=out, env=environment) as process:
        try:
            _wait_for(process, command[0], ready, log)
            yield process.pid
        finally:
            _stop(process)


def _wait_for(process: subprocess.Popen[bytes], name: str, ready: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(ready, timeout=1):
                return
        except (OSError, urllib.error.URLError):
            time.sleep(0.1)
    said = log.read_text(errors="replace").strip()[-1500:]
    raise ToolError(f"{name} did not answer {ready} in {START_SECONDS:.0f} s: {said}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()


def resident_bytes(pid: int) -> int:
    """A process's resident memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def engine_stats(port: int) -> dict[str, int]:
    """What the engine stub has served so far."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/stats", timeout=5) as answer:
        return {name: int(value) for name, value in json.load(answer).items()}


def load(program: Path, core: int, settings: tuple[str, ...], seconds: float) -> dict[str, Any]:
    """Run the load client, which takes about `seconds`, and return what it printed."""
    command = [*_FIRST, "taskset", "-c", str(core), str(program), *settings]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds + 60)
    if done.returncode:
        raise ToolError(f"the load client failed: {done.stderr.strip()}")
    return dict(json.loads(done.stdout))

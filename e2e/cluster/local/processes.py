"""Which processes of this host belong to a cluster, asked of /proc and of nothing else.

Every process that the `local` backend starts carries the cluster's name in its environment. So leftovers are found even
when `up` was killed half-way or the state folder is lost, and there are no pid files that can go stale.
"""

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.errors import ClusterError

CLUSTER = "STEELYARD_CLUSTER_PROCESS"
MACHINE = "STEELYARD_CLUSTER_MACHINE"
PAUSE = "pause"


@dataclass(frozen=True)
class Process:
    """One process: its pid as the host sees it, its program's name, its environment and its pid in its own namespace."""

    pid: int
    command: str
    environment: dict[str, str]
    inner_pid: int

    @property
    def is_machine(self) -> bool:
        """Whether this is the pid 1 that holds a machine's namespaces."""
        return self.command == PAUSE and self.inner_pid == 1 and MACHINE in self.environment


def environment(cluster: str, machine: str = "") -> dict[str, str]:
    """The whole environment of a process started for `cluster`: the marks above and nothing of the caller's own."""
    marks = {CLUSTER: cluster} | ({MACHINE: machine} if machine else {})
    return {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/",
        "LANG": "C.UTF-8",
        **marks,
    }


def parse(pid: int, environ: bytes, status: str) -> Process:
    """Build a `Process` from the texts of /proc/PID/environ and /proc/PID/status."""
    pairs = (entry.partition("=") for entry in environ.decode(errors="replace").split("\0") if entry)
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    inner = fields.get("NSpid", str(pid)).split()
    return Process(pid, fields.get("Name", "").strip(), {key: value for key, _, value in pairs}, int(inner[-1]))


def of_cluster(cluster: str, proc: Path = Path("/proc")) -> Iterator[Process]:
    """Yield the living processes that carry the mark of `cluster`; those that end meanwhile are skipped."""
    mark = f"{CLUSTER}={cluster}".encode()
    for folder in proc.iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            environ = (folder / "environ").read_bytes()
            if mark in environ.split(b"\0"):
                yield parse(int(folder.name), environ, (folder / "status").read_text())
        except OSError:
            continue


def machines(cluster: str, proc: Path = Path("/proc")) -> dict[str, int]:
    """Map each running machine of `cluster` to the host's pid of its pid 1."""
    return {p.environment[MACHINE]: p.pid for p in of_cluster(cluster, proc) if p.is_machine}


def kill_all(cluster: str, timeout: float = 30.0) -> int:
    """Kill every process of `cluster` and wait until none is left; return how many were found first.

    Processes in the middle of starting others are caught by looking again. Raises `ClusterError` after `timeout` seconds.
    """
    found: set[int] = set()
    deadline = time.monotonic() + timeout
    while left := [process.pid for process in of_cluster(cluster)]:
        found.update(left)
        if time.monotonic() > deadline:
            raise ClusterError(f"Processes {left} of cluster {cluster!r} do not end; look at them with ps and retry.")
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.05)
    return len(found)

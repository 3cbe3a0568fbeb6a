"""Machines: starting one, running commands in it, and its long-running programs."""

import os
import shlex
import signal as signals
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from e2e.cluster.errors import ClusterError
from e2e.cluster.local import processes
from e2e.cluster.local.layout import Layout

Command = Sequence[str | Path]


@dataclass(frozen=True)
class Machine:
    """A running machine: `pid` is its pid 1 as the host sees it."""

    layout: Layout
    name: str
    pid: int

    @property
    def folder(self) -> Path:
        return self.layout.machine(self.name)

    def command(self, command: Command) -> list[str]:
        """The host's command that runs `command` inside the machine."""
        # Not `ip netns exec`: it mounts /sys anew and so hides the cgroups.
        spaces = ["--net", "--mount", "--pid", "--uts", "--ipc"]
        return ["nsenter", "-t", str(self.pid), *spaces, "--", *map(str, command)]

    def network_command(self, command: Command) -> list[str]:
        """The host's command that runs `command` in the machine's network alone, with the host's processes and files."""
        return ["nsenter", f"--net=/proc/{self.pid}/ns/net", "--", *map(str, command)]

    def run(self, *command: str | Path, stdin: IO[bytes] | None = None) -> str:
        """Run `command` in the machine and return its output; raise `ClusterError` with its error text if it fails."""
        return self._run(self.command(command), command, stdin)

    def run_in_network(self, *command: str | Path) -> str:
        """Run `command` as `run` does, but in the machine's network alone, with the host's processes and files."""
        return self._run(self.network_command(command), command)

    def _run(self, full: list[str], command: Command, stdin: IO[bytes] | None = None) -> str:
        done = subprocess.run(
            full,
            env=processes.environment(self.layout.name),
            stdin=stdin or subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if done.returncode:
            what = shlex.join(map(str, command))[:500]
            detail = done.stderr.decode(errors="replace").strip()[-2000:]
            raise ClusterError(f"In {self.name}, {what} ended with status {done.returncode}: {detail}")
        return done.stdout.decode(errors="replace")

    def succeeds(self, *command: str | Path) -> bool:
        """Whether `command` ends with status 0 in the machine."""
        try:
            self.run(*command)
        except ClusterError:
            return False
        return True

    def run_all(self, commands: Sequence[Command]) -> None:
        """Run `commands` one after the other in the machine, entering it once; stop at the first that fails."""
        self.run("sh", "-ec", "\n".join(shlex.join(map(str, command)) for command in commands))

    def start(self, program: str, command: Command) -> None:
        """Start a long-running program; its log goes to the cluster's log folder, its inner pid to the machine's /run."""
        script = f'echo $$ >/run/{program}.pid; exec "$@"'
        with self.log(program).open("ab") as log:
            subprocess.Popen(
                self.command(["sh", "-c", script, "sh", *command]),
                env=processes.environment(self.layout.name, self.name),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd="/",
            )

    def log(self, program: str) -> Path:
        return self.layout.logs / f"{self.name}-{program}.log"

    def alive(self, program: str) -> bool:
        """Whether the program that `start` began under this name still runs."""
        return self.succeeds("sh", "-c", f"kill -0 $(cat /run/{program}.pid)")

    def stop(self, program: str, signal: str = "TERM", timeout: float = 20.0) -> None:
        """Send `signal` to a program and wait until it has ended; nothing happens when it does not run."""
        if not self.alive(program):
            return
        self.run("sh", "-c", f"kill -{signal} $(cat /run/{program}.pid)")
        wait_until(lambda: not self.alive(program), f"{program} on {self.name} to end", timeout, self.log(program))


def create(layout: Layout, name: str, pause: Path) -> Machine:
    """Make the machine `name` and prepare what every machine needs; `pause` is the program that becomes its pid 1."""
    folder = layout.machine(name)
    folder.mkdir(parents=True, exist_ok=True)
    layout.logs.mkdir(parents=True, exist_ok=True)
    layout.volumes.mkdir(parents=True, exist_ok=True)
    spaces = ["--net", "--mount", "--pid", "--uts", "--ipc", "--propagation", "private"]
    log = layout.logs / f"{name}-pause.log"
    with log.open("ab") as output:
        subprocess.Popen(
            ["unshare", *spaces, "--fork", "--kill-child", "--mount-proc", str(pause)],
            env=processes.environment(layout.name, name),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=output,
            start_new_session=True,
            cwd="/",
        )
    wait_until(lambda: name in processes.machines(layout.name), f"machine {name} to start", 20, log)
    machine = Machine(layout, name, processes.machines(layout.name)[name])
    provisioned = "/tmp/hostpath_pv"
    machine.run_all(
        [
            ["hostname", name],
            ["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"],
            ["mkdir", "-p", "/run/netns", "/run/lock", provisioned],
            ["ip", "link", "set", "lo", "up"],
            ["mount", "--bind", layout.volumes, provisioned],
            ["mount", "--make-rshared", "/"],  # pods that ask for mount propagation need it
        ]
    )
    return machine


def discard(layout: Layout, name: str) -> None:
    """Kill the machine `name` and remove its folder, if there is such a machine."""
    if (pid := processes.machines(layout.name).get(name)) is not None:
        os.kill(pid, signals.SIGKILL)
        wait_until(lambda: name not in processes.machines(layout.name), f"machine {name} to end", 20)
    subprocess.run(["rm", "-rf", "--one-file-system", str(layout.machine(name))], check=True)


def find(layout: Layout, name: str) -> Machine:
    """Return the running machine `name`; raise `ClusterError` when it does not run."""
    pid = processes.machines(layout.name).get(name)
    if pid is None:
        raise ClusterError(f"Cluster {layout.name!r} has no running machine {name!r}.")
    return Machine(layout, name, pid)


def wait_until(condition: Callable[[], bool], what: str, timeout: float, log: Path | None = None) -> None:
    """Ask `condition` ten times a second until it holds; after `timeout` seconds raise with the end of `log`."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-8:]) if log and log.exists() else ""
            raise ClusterError(
                f"Waited {timeout:.0f} s in vain for {what}." + (f" Its log {log} ends:\n{tail}" if log else "")
            )
        time.sleep(0.1)

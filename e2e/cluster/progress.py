"""How long work is shown: moving bars on a terminal, plain lines elsewhere (logs, CI)."""

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

QUIET_SECONDS = 30.0
"""Plain lines tell the state of a running build this often."""


class Display(Protocol):
    """Told by builds what they do; may be called from several threads."""

    def started(self, name: str, total: int) -> None: ...
    def compiled(self, name: str, count: int) -> None: ...
    def finished(self, name: str) -> None: ...


class Lines:
    """Writes a line when a build begins, about every `QUIET_SECONDS`, and when it ends."""

    def __init__(self, console: Console) -> None:
        self._console, self._lock = console, threading.Lock()
        self._totals: dict[str, int] = {}
        self._began: dict[str, float] = {}
        self._told: dict[str, float] = {}

    def started(self, name: str, total: int) -> None:
        with self._lock:
            self._totals[name], self._began[name] = total, time.monotonic()
            self._told[name] = self._began[name]
            self._console.print(f"build {name}: started", highlight=False)

    def compiled(self, name: str, count: int) -> None:
        with self._lock:
            now = time.monotonic()
            if now - self._told[name] >= QUIET_SECONDS:
                self._told[name] = now
                elapsed = now - self._began[name]
                total = self._totals[name]
                self._console.print(
                    f"build {name}: {count} of about {total} packages, {elapsed:.0f} s", highlight=False
                )

    def finished(self, name: str) -> None:
        with self._lock:
            elapsed = time.monotonic() - self._began[name]
            self._console.print(f"build {name}: done in {elapsed:.0f} s", highlight=False)


class Bars:
    """Shows one bar per build in a running rich `Progress`."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def started(self, name: str, total: int) -> None:
        self._tasks[name] = self._progress.add_task(name, total=total)

    def compiled(self, name: str, count: int) -> None:
        self._progress.update(self._tasks[name], completed=count)

    def finished(self, name: str) -> None:
        task = next(task for task in self._progress.tasks if task.id == self._tasks[name])
        self._progress.update(task.id, completed=task.total)


def is_interactive() -> bool:
    """Whether a person sits at a terminal: never when CI=true."""
    return os.environ.get("CI", "").lower() != "true" and sys.stdin.isatty() and sys.stderr.isatty()


@contextmanager
def display(console: Console) -> Iterator[Display]:
    """Give the display that fits `console` while builds run."""
    if not (console.is_terminal and is_interactive()):
        yield Lines(console)
        return
    columns = (TextColumn("build {task.description:<12}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        yield Bars(progress)

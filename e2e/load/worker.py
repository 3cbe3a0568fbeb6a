"""`python -m e2e.load.worker FD`: a process that drives its part of a run. `e2e.load.running` starts it.

A process of its own, so that neither a test's threads nor its garbage collector delay the client. Over the connection FD
come `(Spec, planned)`, then the start in seconds of the machine's monotonic clock, then orders: `STOP` sending, or
`STOP_NOW`; its end (the parent is gone) means the latter. What goes back: `READY`, a `Progress` every quarter of a second,
and last `(records, Health)` or a LoadError.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

import uvloop

from e2e.load.drive import Driver
from e2e.load.errors import LoadError
from e2e.load.health import Health
from e2e.load.records import Record
from e2e.load.running import READY, STOP_NOW
from e2e.load.spec import Planned, Spec

_PROGRESS_SECONDS = 0.25


def main() -> None:
    """Drive one part of a run."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides what it means
    parent: Connection[Any, Any] = Connection(int(sys.argv[1]))
    try:
        spec, planned = parent.recv()
        parent.send(READY)
        began = parent.recv()
    except (EOFError, OSError):
        return
    gc.freeze()
    try:
        end: object = uvloop.run(_drive(parent, spec, planned, began))
    except LoadError as error:
        end = error
    _tell(parent, end)


async def _drive(
    parent: Connection[Any, Any], spec: Spec, planned: Sequence[Planned], began: float
) -> tuple[list[Record], Health]:
    driver = Driver(spec, planned, began)
    loop = asyncio.get_running_loop()
    loop.add_reader(parent.fileno(), _obey, parent, driver)
    reporting = loop.create_task(_report(parent, driver))
    try:
        return await driver.run()
    finally:
        reporting.cancel()
        loop.remove_reader(parent.fileno())


def _obey(parent: Connection[Any, Any], driver: Driver) -> None:
    try:
        order = parent.recv()
    except (EOFError, OSError):
        asyncio.get_running_loop().remove_reader(parent.fileno())
        order = STOP_NOW
    driver.stop(now=order == STOP_NOW)


async def _report(parent: Connection[Any, Any], driver: Driver) -> None:
    while True:
        await asyncio.sleep(_PROGRESS_SECONDS)
        _tell(parent, driver.progress())


def _tell(parent: Connection[Any, Any], message: object) -> None:
    with contextlib.suppress(OSError):  # the parent is gone, and with it who wanted to know
        parent.send(message)


if __name__ == "__main__":
    main()

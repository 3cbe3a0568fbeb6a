"""`python -m e2e.load.worker ORDERS REPORTS`: a process that drives its part of a run. `e2e.load.running` starts it.

A process of its own, so that neither a test's threads nor its garbage collector delay the client. From the pipe ORDERS it
reads `(Spec, planned, address)`, then the start in seconds of the machine's monotonic clock, then `STOP` (sending) or
`STOP_NOW`; the pipe's end (the parent is gone) means the latter. To the pipe REPORTS it writes `READY`, a `Progress` every
quarter of a second, and last `(records, Health)` or a LoadError. There are two pipes because the event loop makes the one
that it watches non-blocking.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import sys
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import uvloop

from e2e.load.drive import Driver
from e2e.load.errors import LoadError
from e2e.load.health import Health
from e2e.load.records import Record
from e2e.load.running import READY, STOP_NOW

_PROGRESS_SECONDS = 0.25


if TYPE_CHECKING:
    Pipe = Connection[Any, Any]


def main() -> None:
    """Drive one part of a run."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides what it means
    orders: Pipe = Connection(int(sys.argv[1]), writable=False)
    reports: Pipe = Connection(int(sys.argv[2]), readable=False)
    try:
        spec, planned, address = orders.recv()
        driver = Driver(spec, planned, address)
        reports.send(READY)
        began = orders.recv()
        gc.freeze()
        try:
            end: object = uvloop.run(_drive(orders, reports, driver, began))
        except LoadError as error:
            end = error
        reports.send(end)
    except (EOFError, BrokenPipeError):
        return  # the parent is gone, and with it who wanted to know


async def _drive(orders: Pipe, reports: Pipe, driver: Driver, began: float) -> tuple[list[Record], Health]:
    loop = asyncio.get_running_loop()
    loop.add_reader(orders.fileno(), _obey, orders, driver)
    reporting = loop.create_task(_report(reports, driver))
    try:
        return await driver.run(began)
    finally:
        reporting.cancel()
        loop.remove_reader(orders.fileno())


def _obey(orders: Pipe, driver: Driver) -> None:
    try:
        order = orders.recv()
    except EOFError:
        asyncio.get_running_loop().remove_reader(orders.fileno())
        order = STOP_NOW
    driver.stop(now=order == STOP_NOW)


async def _report(reports: Pipe, driver: Driver) -> None:
    while True:
        await asyncio.sleep(_PROGRESS_SECONDS)
        with contextlib.suppress(BrokenPipeError):  # the orders' end is about to stop us
            reports.send(driver.progress())


if __name__ == "__main__":
    main()

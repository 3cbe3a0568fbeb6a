"""The process: start listening at once, load in the worker, serve, and on SIGTERM drain before leaving.

Draining: not ready and no new work from the first moment; running requests get the drain timeout; a prefilled state
stays until it was fetched or its lease ended; then exit status 0. Loading is given up at once. A worker that dies ends
the process with status 1.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time

import aiohttp
import uvloop
from aiohttp import web

from . import journal
from .engine import Engine
from .serve import Server
from .settings import Settings, make_backend, make_guesser, read_arguments

log = logging.getLogger("steelyard_engine")
_POLL_SECONDS = 0.05
_CLOSE_SECONDS = 1.0  # that open connections get once nothing is served


def main() -> None:
    """Run the engine until SIGTERM; the entry point `steelyard-engine`."""
    journal.start()
    settings = read_arguments()
    try:
        status = uvloop.run(_serve(settings))
    except (OSError, ValueError) as error:
        log.error("cannot start: %s", error)
        status = 1
    sys.exit(status)


async def _serve(settings: Settings) -> int:
    backend = make_backend(settings)
    engine = Engine(backend, settings.options, make_guesser(settings, backend))
    leave = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, leave.set)
    async with aiohttp.ClientSession() as session:
        server = Server(
            engine,
            settings.context_length,
            settings.advertise_host,
            settings.kv_port,
            settings.options.lease_seconds,
            session,
        )
        runners = [await _listen(server.api(), settings.port), await _listen(server.kv(), settings.kv_port)]
        engine.start()
        log.info("listening", extra={"port": settings.port, "kv_port": settings.kv_port, "backend": settings.backend})
        while engine.alive and not leave.is_set():
            await _first(leave, _POLL_SECONDS * 10)
        if engine.alive:
            await _drain(server, settings.drain_timeout)
        await engine.stop()
        for runner in runners:
            await runner.cleanup()
    if engine.loading:  # nothing interrupts native code that loads for minutes; nor may it see its process taken apart
        logging.shutdown()
        os._exit(0)
    return 1 if engine.failure else 0


async def _listen(app: web.Application, port: int) -> web.AppRunner:
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=_CLOSE_SECONDS)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", port).start()  # pods are reached on every address
    return runner


async def _drain(server: Server, timeout_seconds: float) -> None:
    """Wait until nothing is served, at most `timeout_seconds`, and until no state is held, at most its lease."""
    server.draining = True
    log.info("draining")
    end = time.monotonic() + timeout_seconds
    while (not server.idle and time.monotonic() < end) or server.engine.held:  # noqa: ASYNC110 (two threads' states)
        await asyncio.sleep(_POLL_SECONDS)
    log.info("drained", extra={"idle": server.idle})


async def _first(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()

"""`steelyard-operator`: settings, lease, watches, queue and probes put together in one process.

Two replicas run; both watch, the one that holds the lease works. A replica that cannot renew stops writing by itself
(the API client asks before every write), and the other starts from what it has watched meanwhile.
"""

import argparse
import asyncio
import contextlib
import logging
import sys
import time
from pathlib import Path

import kopf

from steelyard.apply.lease import STEP_SECONDS, Elector
from steelyard.observe.client import TIMEOUT_SECONDS, Api, ApiError, Missing, NotLeading, connect
from steelyard.observe.demand import Gateways
from steelyard.observe.prometheus import Access, Prometheus
from steelyard.observe.resources import INFERENCE_SERVICE
from steelyard.observe.wire import NoServer, Wire, find
from steelyard.run import logs, metrics, probes, watching
from steelyard.run.autoscaler import Autoscaler
from steelyard.run.fleet import Fleet
from steelyard.run.health import Health
from steelyard.run.reconcile import Reconciler
from steelyard.run.rest import Rest
from steelyard.run.settings import Settings, SettingsError, identity, load
from steelyard.run.starts import Starts
from steelyard.run.work import Work
from steelyard.run.worker import Worker

log = logging.getLogger(__name__)

WAIT_FOR_KINDS_SECONDS = 3


def main() -> None:
    """Run until SIGTERM; exit status 2 means wrong settings, or no way to the API server."""
    parser = argparse.ArgumentParser(prog="steelyard-operator", description="Serves InferenceServices.")
    config = Path("/etc/steelyard/operator.yaml")
    parser.add_argument("--config", type=Path, default=config, help="settings file (YAML); default %(default)s")
    parser.add_argument("--port", type=int, default=probes.PORT, help="of /live, /ready, /metrics; default %(default)s")
    given = parser.parse_args()
    logs.start()
    try:
        settings = load(given.config)
    except SettingsError as failure:
        log.error("%s", failure)
        sys.exit(2)
    try:
        with contextlib.suppress(asyncio.CancelledError):
            asyncio.run(operate(settings, given.port))
    except NoServer as failure:
        log.error("%s", failure)
        sys.exit(2)


async def operate(settings: Settings, port: int) -> None:
    """Serve until the process is told to stop."""
    me, own_namespace = identity()
    health = Health(loop_turned=time.monotonic())
    server = probes.serve(health, port)
    elector = Elector(connect(told=metrics.count_call), own_namespace, settings.lease_name, me)
    api = connect(may_write=lambda: elector.leading(time.monotonic()), told=metrics.count_call)
    fleet = Fleet() if settings.prometheus is not None else None
    rest = Rest(settings.resync_seconds)
    reconcile = Reconciler(api, settings.site(own_namespace), me, settings.resync_seconds, fleet, rest)

    worker = Worker(Work(reconcile, health), lambda: health.leading, settings.workers)
    await _wait_for_kinds(api, settings, health)
    registry = kopf.OperatorRegistry()
    services = watching.Services(worker.ask, worker.forget, health, rest.told)
    watching.register(registry, services)
    children = watching.watch_children(Wire(find(), TIMEOUT_SECONDS), settings.watch_namespaces, services)
    watches = kopf.operator(
        registry=registry,
        settings=watching.settings(),
        standalone=True,
        clusterwide=not settings.watch_namespaces,
        namespaces=settings.watch_namespaces,
        identity=me,  # type: ignore[arg-type]  # given, so that kopf does not ask for a user name the image lacks
    )
    tasks = [
        asyncio.create_task(worker.serve(), name="work queue"),
        asyncio.create_task(_beat(health, worker), name="heartbeat"),
        asyncio.create_task(_lead(elector, health, me, reconcile.starts), name="lease"),
        asyncio.create_task(watches, name="watches"),  # last: kopf ends, and ends what began after it, on SIGTERM
    ]
    if settings.prometheus is not None and fleet is not None:
        there = settings.prometheus
        access = Access(there.bearer_token_file, there.username or "", there.password_file, there.ca_file)
        prometheus = Prometheus(there.url, access, there.timeout_seconds)
        autoscaler = Autoscaler(api, fleet, prometheus.look, Gateways().ask, me, settings.tick_seconds)
        tasks.insert(0, asyncio.create_task(_decide(autoscaler, health), name="autoscaler"))
    health.watching = True
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            task.result()  # a part that failed ends the process, which Kubernetes starts anew
    finally:
        log.info("stopping")
        for watch in children:
            watch.stop()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(elector.release, time.monotonic())
        server.shutdown()


async def _lead(elector: Elector, health: Health, me: str, starts: Starts) -> None:
    """Seek or hold the lease."""
    while True:
        await asyncio.to_thread(elector.step, time.monotonic())
        leading = elector.leading(time.monotonic())
        if leading != health.leading:
            log.info("leading" if leading else "standing by", extra={"replica": me})
        health.leading = leading
        metrics.LEADING.set(leading)
        if not leading:
            starts.reset()
            metrics.forget_services()
        await asyncio.sleep(STEP_SECONDS)


async def _decide(autoscaler: Autoscaler, health: Health) -> None:
    """Let the autoscaler decide at every tick, while this replica leads; one tick at a time."""
    while True:
        began = time.monotonic()
        if health.leading:
            try:
                await asyncio.to_thread(autoscaler.tick, time.time())
            except NotLeading:
                log.info("the tick ended early: this replica does not lead any more")
            except Exception:
                log.exception("the autoscaler's tick failed; the next one starts afresh")
        else:
            autoscaler.reset()
        await asyncio.sleep(max(0.0, autoscaler.tick_seconds - (time.monotonic() - began)))


async def _beat(health: Health, worker: Worker) -> None:
    """Show that the loop turns, and how long work has waited."""
    while True:
        health.loop_turned = time.monotonic()
        health.oldest_wait = worker.oldest_wait()
        metrics.OLDEST_WAIT_SECONDS.set(health.oldest_wait)
        metrics.QUEUE_LENGTH.set(len(worker))
        await asyncio.sleep(1)


async def _wait_for_kinds(api: Api, settings: Settings, health: Health) -> None:
    """Wait until our kinds are installed: kopf would otherwise watch nothing, for ever, without a word."""
    told = False
    namespace = settings.watch_namespaces[0] if settings.watch_namespaces else None
    while True:
        health.loop_turned = time.monotonic()
        try:
            await asyncio.to_thread(api.ask_for, INFERENCE_SERVICE, namespace)
        except Missing:
            if not told:
                log.warning("the kind InferenceService is not installed; waiting for chart steelyard-crds")
            told = True
        except ApiError as failure:
            log.warning("the API server does not answer: %s", failure)
        else:
            return
        await asyncio.sleep(WAIT_FOR_KINDS_SECONDS)

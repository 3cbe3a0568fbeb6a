"""The gateway as a process: its listeners, the files it re-reads, and how it leaves.

On SIGTERM it says "not ready" at once, goes on serving for `drain_delay` seconds (until nobody is sent here any more),
then takes no new connections, finishes what runs up to `drain_timeout` seconds, and ends.
"""

import asyncio
import gc
import logging
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from steelyard.decide import slots
from steelyard.decide.queue.windows import WINDOW_SECONDS
from steelyard.gateway.admin import (
    MOST_CONNECTIONS,
    AdminConnection,
    Page,
    demand_page,
    live_page,
    metrics_page,
    ready_page,
)
from steelyard.gateway.connections import Connections, descriptor_limit
from steelyard.gateway.errors import ClientError
from steelyard.gateway.files import WatchedFile
from steelyard.gateway.frontdoor import FrontDoor
from steelyard.gateway.keys import ApiKeys
from steelyard.gateway.metrics import Metrics
from steelyard.gateway.pods import Pod, PodsError, parse_pods_file
from steelyard.gateway.router import Router
from steelyard.gateway.server import Client
from steelyard.gateway.settings import Settings, SettingsError, parse_settings
from steelyard.gateway.watch import ApiServer, PodWatch

log = logging.getLogger(__name__)

SWEEP_SECONDS = 0.25
FILES_SECONDS = 0.5
BACKLOG = 4096


@dataclass(frozen=True, slots=True)
class Options:
    """The command line."""

    config: str
    port: int
    metrics_port: int
    host: str = ""
    pods: str | None = None
    drain_delay: float = 3.0
    drain_timeout: float = 60.0


class Process:
    """One gateway process, from its settings to its end."""

    def __init__(self, options: Options) -> None:
        """Read the settings. Raises OSError or SettingsError: without settings there is nothing to serve."""
        self._options = options
        self._config = WatchedFile(options.config)
        self._settings = parse_settings(self._config.read())
        self._decision = WatchedFile(str(Path(options.config).with_name(slots.FILE)))
        self._slots: int | None = None  # what the autoscaler has decided, if it has
        self._pods_file = WatchedFile(options.pods) if options.pods else None
        self._keys_file: WatchedFile | None = None
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Serve until told to stop, then drain."""
        loop = asyncio.get_running_loop()
        metrics = Metrics()
        self._router = Router(self._settings, metrics, loop)
        self._look_at_decision()
        self._door = FrontDoor(self._router, self._read_keys(self._settings), int(time.time()), descriptor_limit())
        self._admin: Connections[AdminConnection] = Connections(lambda: MOST_CONNECTIONS)
        metrics.ports = {"api": self._door.connections, "metrics": self._admin}
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        pages: dict[bytes, Page] = {
            b"/metrics": metrics_page(metrics.registry()),
            b"/ready": ready_page(self._why_not_ready),
            b"/live": live_page,
            b"/demand": demand_page(lambda: self._router.ledger.windows.complete(time.time()), WINDOW_SECONDS),
        }
        options = self._options
        host = options.host or None
        watch = self._discover(loop)
        server = await loop.create_server(lambda: Client(self._door), host, options.port, backlog=BACKLOG)
        # Last, so that a probe's first answer means that the API is open too.
        admin = await loop.create_server(
            lambda: AdminConnection(pages, self._admin), host, options.metrics_port, backlog=BACKLOG
        )
        log.info("serving", extra={"fields": {"port": options.port, "model": self._settings.served_name}})
        gc.collect()
        gc.freeze()  # what lives for the whole process need not be looked at again
        gc.set_threshold(50_000, 20, 50)  # requests leave few cycles: looking for them every 700 objects stalls streams
        ticker = asyncio.create_task(self._tick())
        await self._stop.wait()
        await self._drain(server)
        ticker.cancel()
        if watch is not None:
            watch.stop()
        self._router.fleet.close()
        admin.close()

    def _why_not_ready(self) -> str | None:
        if self._door.draining:
            return "draining"
        role = self._router.missing_role()
        return f"no {role} engine is ready" if role else None

    def _discover(self, loop: asyncio.AbstractEventLoop) -> PodWatch | None:
        """Find pods by file or from the API server."""
        if self._pods_file is not None:
            self._take_pods(self._pods_file.read())
            return None

        def found(pods: tuple[Pod, ...]) -> None:
            loop.call_soon_threadsafe(self._router.set_pods, pods)

        watch = PodWatch(ApiServer.of_this_pod(), self._settings.namespace, self._settings.service, found)
        watch.start()
        return watch

    async def _tick(self) -> None:
        """Look at deadlines often and at files now and then."""
        files_due = 0.0
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            try:
                now = self._router.now()
                self._door.connections.sweep(now)
                self._admin.sweep(now)
                self._router.sweep()
                if self._router.now() >= files_due:
                    files_due = self._router.now() + FILES_SECONDS
                    self._look_at_files()
            except Exception:
                log.exception("sweep failed")

    def _look_at_files(self) -> None:
        config = self._config.changed()
        if config is not None:
            self._take_settings(config)
        self._look_at_decision()
        if self._pods_file is not None:
            pods = self._pods_file.changed()
            if pods is not None:
                self._take_pods(pods)
        if self._keys_file is not None:
            keys = self._keys_file.changed()
            if keys is not None:
                self._door.keys = ApiKeys(keys)
                log.info("API keys re-read", extra={"fields": {"keys": len(self._door.keys)}})

    def _take_settings(self, text: bytes) -> None:
        try:
            settings = parse_settings(text)
            if settings.api_keys_file != self._settings.api_keys_file:
                self._door.keys = self._read_keys(settings)
        except (SettingsError, OSError) as error:
            self._router.metrics.settings_refused += 1
            log.error("new settings refused, the old ones stay", extra={"fields": {"why": str(error)}})
            return
        self._settings = settings
        self._apply()
        self._door.apply(settings)
        log.info("settings re-read", extra={"fields": {"model": settings.served_name}})

    def _look_at_decision(self) -> None:
        """Take over what the autoscaler has decided; its file may be missing, and what is no decision is left alone."""
        text = self._decision.changed()
        if text is None:
            return
        decided = slots.read(text)
        if decided is None:
            self._router.metrics.settings_refused += 1
            log.error(
                "new decode slots refused, the old ones stay", extra={"fields": {"file": str(self._decision.path)}}
            )
            return
        self._slots = decided
        self._apply()
        log.info("decode slots re-read", extra={"fields": {"slots": decided}})

    def _apply(self) -> None:
        settings = self._settings
        self._router.apply(settings if self._slots is None else settings.limited_to(self._slots))

    def _take_pods(self, text: bytes) -> None:
        try:
            pods = parse_pods_file(text)
        except PodsError as error:
            log.error("new pods refused, the old ones stay", extra={"fields": {"why": str(error)}})
            return
        self._router.set_pods(pods)

    def _read_keys(self, settings: Settings) -> ApiKeys | None:
        """Read the keys and watch their file from now on. Raises OSError, and then the file before stays watched."""
        file = WatchedFile(settings.api_keys_file) if settings.api_keys_file else None
        keys = ApiKeys(file.read()) if file is not None else None
        self._keys_file = file
        return keys

    async def _drain(self, server: asyncio.Server) -> None:
        """Leave: not ready, then no new connections, then nothing that runs."""
        options, door = self._options, self._door
        door.draining = True
        log.info("draining", extra={"fields": {"running": len(self._router.exchanges)}})
        await asyncio.sleep(options.drain_delay)
        server.close()
        deadline = self._router.now() + options.drain_timeout
        while True:
            for client in list(door.connections.open):
                client.close_if_idle()
            if not door.connections.open or self._router.now() >= deadline:
                break
            await asyncio.sleep(0.05)
        left = list(self._router.exchanges.values())
        for exchange in left:
            exchange.abandon(ClientError(503, "the gateway is shutting down", retry_after=1))
        for client in list(door.connections.open):
            client.close_if_idle()
        await asyncio.sleep(0.05 if left else 0)
        log.info("ended", extra={"fields": {"abandoned": len(left)}})

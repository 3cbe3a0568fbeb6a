"""Watch our kinds and the labelled children, and turn every event into an ask for its service.

Our own kinds are watched by kopf, with `on.event` only: no finalizers, no annotations, no state of its own. Children are
watched without it, since it reads them whole and keeps a memory of each (docs/design/operator.md). The label selector is
applied by the API server, so other people's pods never reach this process.
"""

import asyncio
import contextlib
import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any

import kopf

from steelyard.api import labels
from steelyard.observe.resources import ACCELERATOR, CHILD_KINDS, CONTROLLER_REVISION, INFERENCE_SERVICE, POD
from steelyard.observe.watch import Watch
from steelyard.observe.wire import Wire
from steelyard.run.health import Health
from steelyard.run.worker import Key

FOLD_SECONDS = 0.3  # children change in bursts, our own writes included: one look for the lot
OURS = f"{labels.MANAGED_BY}={labels.MANAGER}"
SERVER_TIMEOUT_SECONDS = 300
REQUEST_TIMEOUT_SECONDS = 30


def settings() -> kopf.OperatorSettings:
    """kopf as a watcher and nothing else.

    Scanning is off: it would need list and watch on CRDs and namespaces, and the kinds are there before it starts.
    """
    found = kopf.OperatorSettings()
    found.posting.enabled = False
    found.scanning.disabled = True
    found.watching.server_timeout = SERVER_TIMEOUT_SECONDS
    found.networking.request_timeout = REQUEST_TIMEOUT_SECONDS
    return found


def register(registry: kopf.OperatorRegistry, services: "Services") -> None:
    """Add the handlers of our own kinds."""

    @kopf.on.login(registry=registry)
    def login(**given: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_service_account(**given) or kopf.login_with_kubeconfig(**given)

    @kopf.on.event(*_selector(INFERENCE_SERVICE), registry=registry, id="service")
    async def service(event: Any, **_: Any) -> None:
        services.service(event["type"], dict(event["object"]))

    @kopf.on.event(*_selector(ACCELERATOR), registry=registry, id="accelerator")
    async def accelerator(**_: Any) -> None:
        services.missed(ACCELERATOR.kind)


def watch_children(wire: Wire, namespaces: Sequence[str], services: "Services") -> list[Watch]:
    """Watch all kinds of children and pods, in these namespaces or everywhere; `services` is told on the running loop."""
    loop = asyncio.get_running_loop()

    def on_loop(tell: Callable[..., None]) -> Callable[..., None]:
        def told(*what: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and the process is about to
                loop.call_soon_threadsafe(tell, *what)

        return told

    found = [
        Watch(wire, resource, namespace, OURS, on_loop(services.child), on_loop(services.missed))
        for resource in (*CHILD_KINDS, CONTROLLER_REVISION, POD)
        for namespace in namespaces or (None,)
    ]
    for watch in found:
        watch.start()
    return found


class Services:
    """The known services and what the last event said of each."""

    def __init__(
        self,
        ask: Callable[..., None],
        forget: Callable[[Key], None],
        health: Health,
        told: Callable[[Key, str], None] = lambda key, kind: None,
    ) -> None:
        self._ask = ask
        self._forget = forget
        self._health = health
        self._told = told
        self._seen: dict[Key, str] = {}

    def service(self, kind: str | None, body: dict[str, Any]) -> None:
        meta = body["metadata"]
        key = (meta["namespace"], meta["name"])
        if kind == "DELETED":
            self._seen.pop(key, None)
            self._health.forget(key)
            self._ask(key)  # the look finds nothing and forgets it, unless it was created anew meanwhile
            return
        self._health.watched(key, int(meta.get("generation") or 0))
        wish = _wish(meta)
        if self._seen.get(key) != wish:
            self._ask(key, urgent=True)
        else:  # a status was written, nearly always our own after a change of children, whose events fold with this one
            self._ask(key, after=FOLD_SECONDS)
        self._seen[key] = wish

    def child(self, kind: str, meta: dict[str, Any]) -> None:
        """A child appeared, changed or went; its metadata tell whose it is."""
        name = (meta.get("labels") or {}).get(labels.SERVICE)
        key = (meta.get("namespace", ""), name or "")
        self._told(key, kind)
        if key in self._seen:
            self._ask(key, after=FOLD_SECONDS)

    def missed(self, kind: str) -> None:
        """Something of this kind changed, or may have, that any service may be concerned with."""
        for key in self._seen:
            self._told(key, kind)
            self._ask(key, after=FOLD_SECONDS)


def _wish(meta: dict[str, Any]) -> str:
    """Hash what the user decides: identity, generation and annotations; status writes leave it alone."""
    text = json.dumps([meta.get("uid"), meta.get("generation"), meta.get("annotations") or {}], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _selector(resource: Any) -> tuple[str, str, str]:
    return (resource.group, resource.version, resource.plural)

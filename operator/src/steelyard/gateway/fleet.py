"""The engine pods in use: what discovery says, less those found broken, grouped by role and kv-group.

A pod that cannot be reached or breaks off is set aside at once and asked for its health with growing pauses; it is used
again after its first good answer. What discovery says about readiness always comes first.
"""

import asyncio
import logging
from collections.abc import Callable

from steelyard.api import labels
from steelyard.gateway.pods import Pod
from steelyard.gateway.upstream import Backend, Call

log = logging.getLogger(__name__)

FIRST_PROBE_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 8.0
PROBE_TIMEOUT_SECONDS = 2.0


class Fleet:
    """All known pods. `changed` is called whenever a ready set may have changed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, changed: Callable[[], None]) -> None:
        self._loop = loop
        self._changed = changed
        self._aside: dict[str, _Probe] = {}
        self.backends: dict[str, Backend] = {}

    def set_pods(self, pods: tuple[Pod, ...]) -> None:
        """Take over what discovery found. A pod whose role or readiness changed keeps its connections."""
        known = {pod.identity: pod for pod in pods}
        for identity in self.backends.keys() - known.keys():
            self.backends.pop(identity).close_idle()
            probe = self._aside.pop(identity, None)
            if probe is not None:
                probe.stop()
        for identity, pod in known.items():
            if identity in self.backends:
                self.backends[identity].pod = pod
            else:
                self.backends[identity] = Backend(pod, self._loop)
        self._changed()

    def usable(self, role: str) -> list[Backend]:
        """Return the ready pods of a role that are not set aside. A prefill pod counts only while a decode pod of its
        kv-group can take over from it."""
        found = [b for i, b in self.backends.items() if b.pod.role == role and b.pod.ready and i not in self._aside]
        if role != labels.PREFILL:
            return found
        groups = {b.pod.kv_group for b in self.usable(labels.DECODE)}
        return [b for b in found if b.pod.kv_group in groups]

    def set_aside(self, backend: Backend, why: str) -> None:
        """Use a pod no more until it has answered a health check."""
        identity = backend.pod.identity
        if identity in self._aside or self.backends.get(identity) is not backend:
            return
        log.warning("engine set aside", extra={"fields": {"pod": backend.pod.name, "why": why}})
        backend.close_idle()
        self._aside[identity] = _Probe(self._loop, backend, self._recovered)
        self._changed()

    def close(self) -> None:
        """Stop probing and close idle connections."""
        for probe in self._aside.values():
            probe.stop()
        for backend in self.backends.values():
            backend.close_idle()

    def _recovered(self, backend: Backend) -> None:
        log.info("engine is back", extra={"fields": {"pod": backend.pod.name}})
        self._aside.pop(backend.pod.identity, None)
        self._changed()


class _Probe:
    """Asks one pod for /health until it answers 200."""

    def __init__(self, loop: asyncio.AbstractEventLoop, backend: Backend, recovered: Callable[[Backend], None]) -> None:
        self._loop = loop
        self._backend = backend
        self._recovered = recovered
        self._pause = FIRST_PROBE_SECONDS
        self._status = 0
        self._call: Call | None = None
        self._timer = loop.call_later(self._pause, self._ask)

    def stop(self) -> None:
        """Give up: the pod has left."""
        self._timer.cancel()
        if self._call is not None:
            self._call.cancel()

    def _ask(self) -> None:
        self._status = 0
        request = b"GET /health HTTP/1.1\r\nhost: %b\r\n\r\n" % self._backend.host
        self._call = self._backend.call(request, self)
        self._timer = self._loop.call_later(PROBE_TIMEOUT_SECONDS, self._too_slow)

    def _too_slow(self) -> None:
        if self._call is not None:
            self._call.cancel()
        self._again()

    def _again(self) -> None:
        self._timer.cancel()
        self._pause = min(self._pause * 2, LONGEST_PAUSE_SECONDS)
        self._timer = self._loop.call_later(self._pause, self._ask)

    def answer_head(self, status: int, content_type: bytes, retry_after: bytes | None) -> None:
        """Note the status."""
        self._status = status

    def answer_data(self, data: bytes) -> None:
        """The body says nothing that the status does not."""

    def answer_end(self) -> None:
        """Use the pod again if it is well."""
        self._timer.cancel()
        if self._status == 200:
            self._recovered(self._backend)
        else:
            self._again()

    def answer_failed(self, why: str, *, unreachable: bool) -> None:
        """Still broken."""
        self._again()

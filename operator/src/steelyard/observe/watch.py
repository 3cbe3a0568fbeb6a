"""Which children changed: one watch a kind, of metadata only, each in a thread of its own.

A change says *when* to look, never what is there (`snapshot.py` reads that anew), so no object is listed, none is kept, and of
those that change only names and labels travel. A watch begins at the API server's present version. What happened before
that, or while a watch was broken for so long that the API server has forgotten (410, or 400 for a version it cannot
read), was missed: `missed` is told once the watch has begun, and whoever hears it looks at everything of that kind.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import urlencode

from msgspec.json import decode

from steelyard.observe.client import USER_AGENT, ApiError, Body, Unreachable, error_of, message_of
from steelyard.observe.resources import Resource
from steelyard.observe.wire import Broken, Wire

log = logging.getLogger(__name__)

WATCH_SECONDS = 300  # how long the API server keeps a watch open; it marks its version about once a minute meanwhile
SILENCE_SECONDS = 150.0  # after which a connection counts as dead; the next one goes on where it was
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 15.0
AT_ONCE_SECONDS = 1.0  # a watch that ended sooner and without a word was cut off by something
UNUSABLE = (HTTPStatus.BAD_REQUEST, HTTPStatus.GONE)  # no going on from the version: not understood, or too old


@dataclass(frozen=True)
class Watch:
    """A watch of one kind, in one namespace or all; `told` gets the kind and an object's metadata, from the watch's thread."""

    wire: Wire
    resource: Resource
    namespace: str | None
    selector: str
    told: Callable[[str, Body], None]
    missed: Callable[[str], None]
    _ended: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Begin in a thread that does not keep the process alive."""
        threading.Thread(target=self._run, name=f"watch-{self.resource.plural}", daemon=True).start()

    def stop(self) -> None:
        """Ask the thread to end as soon as its connection does."""
        self._ended.set()

    def _run(self) -> None:
        version, pause = "", FIRST_PAUSE_SECONDS
        while not self._ended.is_set():
            try:
                version = version or self.begin()
                opened, silent = time.monotonic(), True
                for reached in self.follow(version):
                    version, pause, silent = reached, FIRST_PAUSE_SECONDS, False
                if silent and time.monotonic() - opened < AT_ONCE_SECONDS:
                    self._ended.wait(FIRST_PAUSE_SECONDS)
            except Exception as failure:  # whatever it is: if this thread ended, changes would be unseen for ever
                if isinstance(failure, ApiError) and failure.status in UNUSABLE:
                    version = ""
                what, expected = {"kind": self.resource.kind}, isinstance(failure, ApiError)
                log.warning("watch interrupted: %s", failure, extra=what, exc_info=not expected)
                self._ended.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def begin(self) -> str:
        """Give the version from which a watch sees every later change, and tell that earlier ones were missed."""
        query = {"labelSelector": self.selector, "limit": "1"}
        with self._open(query, "PartialObjectMetadataList") as lines:
            version: str = decode(b"".join(lines))["metadata"]["resourceVersion"]
        self.missed(self.resource.kind)
        return version

    def follow(self, version: str) -> Iterator[str]:
        """Tell of changes after `version`, and give the version reached after each; ends when the API server ends it."""
        query = {
            "labelSelector": self.selector,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        with self._open(query, "PartialObjectMetadata") as lines:
            for line in lines:
                event = decode(line)
                body = event["object"]
                if event["type"] == "ERROR":
                    raise error_of(int(body.get("code") or 0), str(body.get("message") or "the watch failed"))
                if event["type"] != "BOOKMARK":
                    self.told(self.resource.kind, body["metadata"])
                yield body["metadata"]["resourceVersion"]

    @contextmanager
    def _open(self, query: Mapping[str, str], kind: str) -> Iterator[Iterator[bytes]]:
        """Ask for metadata; give the answer's lines. Raises `ApiError`."""
        path = self.resource.path(self.namespace)
        headers = {"Accept": f"application/json;as={kind};g=meta.k8s.io;v=v1", "User-Agent": USER_AGENT}
        try:
            with self.wire.stream(f"{path}?{urlencode(query)}", headers, SILENCE_SECONDS) as (status, lines):
                if status != HTTPStatus.OK:
                    raise error_of(status, message_of(b"".join(lines)) or f"GET {path}: HTTP {status}")
                yield lines
        except Broken as failure:
            raise Unreachable(0, f"GET {path}: {failure}") from failure

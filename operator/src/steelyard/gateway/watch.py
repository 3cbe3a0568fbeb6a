"""Pods from the API server: list once, then watch, in one thread of its own.

The Kubernetes client is not used: importing it takes 60 MB and a YAML parser, for two GET requests. This speaks to the
API server as any pod may, with the mounted token, and reads the few fields routing needs. While the API server is away
the last known pods stay in use. A watch that ends is resumed from its last resource version; one that is too old (410)
begins again with a list, whose result replaces everything.
"""

import http.client
import logging
import os
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode

import msgspec

from steelyard.api import labels
from steelyard.gateway.pods import KubernetesPod, Metadata, Pod, from_kubernetes

log = logging.getLogger(__name__)

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
WATCH_SECONDS = 120  # how long the API server keeps a watch open
SILENCE_SECONDS = WATCH_SECONDS + 30.0  # after which a silent connection is given up
LIST_SECONDS = 15.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 15.0


class _ListMetadata(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _PodList(msgspec.Struct, frozen=True):
    metadata: _ListMetadata = _ListMetadata()
    items: tuple[KubernetesPod, ...] = ()


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _Status(msgspec.Struct, frozen=True):
    code: int = 0
    message: str = ""


class _Bookmark(msgspec.Struct, frozen=True):
    metadata: Metadata = Metadata()


_decode_list = msgspec.json.Decoder(_PodList).decode
_decode_event = msgspec.json.Decoder(_Event).decode
_decode_pod = msgspec.json.Decoder(KubernetesPod).decode
_decode_bookmark = msgspec.json.Decoder(_Bookmark).decode
_decode_status = msgspec.json.Decoder(_Status).decode


class ExpiredError(Exception):
    """The resource version to resume from is too old: list again."""


class ApiServer:
    """Where the API server is and how this pod proves who it is. The token is read at each request: it is rotated."""

    def __init__(self, host: str, port: int, *, account: Path = ACCOUNT, tls: bool = True) -> None:
        self._host = host
        self._port = port
        self._account = account
        self._tls = tls

    @classmethod
    def of_this_pod(cls) -> "ApiServer":
        """Find the API server as every pod does. Raises RuntimeError outside a cluster."""
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not host:
            raise RuntimeError("KUBERNETES_SERVICE_HOST is not set: outside a cluster give the pods by --pods FILE")
        return cls(host, int(port))

    def get(self, path: str, timeout: float) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """Send a GET. Raises OSError or HTTPException; ExpiredError for 410. The caller closes the connection."""
        connection = self._connection(timeout)
        try:
            headers = {"Accept": "application/json"}
            token = self._account / "token"
            if token.exists():
                headers["Authorization"] = "Bearer " + token.read_text().strip()
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            if response.status == 410:
                raise ExpiredError
            if response.status != 200:
                raise OSError(f"the API server answered {response.status} to GET {path.partition('?')[0]}")
        except BaseException:
            connection.close()
            raise
        return connection, response

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        if not self._tls:
            return http.client.HTTPConnection(self._host, self._port, timeout=timeout)
        context = ssl.create_default_context(cafile=str(self._account / "ca.crt"))
        # Newer Pythons also want extensions that the certificates of many clusters lack.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=context)


class PodWatch:
    """Keeps the set of a service's engine pods up to date and hands it on whenever it changes."""

    def __init__(self, api: ApiServer, namespace: str, service: str, found: Callable[[tuple[Pod, ...]], None]) -> None:
        """`found` is called from the thread of this watch."""
        selector = f"{labels.SERVICE}={service},{labels.COMPONENT}=engine"
        self._api = api
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._query = {"labelSelector": selector}
        self._found = found
        self._pods: dict[str, Pod] = {}
        self._told: tuple[Pod, ...] | None = None
        self._version: str | None = None
        self._pause = FIRST_PAUSE_SECONDS
        self._stopped = threading.Event()
        self._connection: http.client.HTTPConnection | None = None

    def start(self) -> None:
        """Begin in a thread that does not keep the process alive."""
        threading.Thread(target=self._run, name="pod-watch", daemon=True).start()

    def stop(self) -> None:
        """Ask the thread to end."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                if self._version is None:
                    self._list()
                self._watch()
                self._pause = FIRST_PAUSE_SECONDS
            except ExpiredError:
                log.info("pod watch begins again", extra={"fields": {"version": self._version}})
                self._version = None
            except Exception as error:  # whatever it is: if this thread ended, the pods would stay as they are for ever
                fields = {"error": str(error) or type(error).__name__, "pods": len(self._pods)}
                log.warning("pod watch interrupted; the last known pods stay in use", extra={"fields": fields})
                self._stopped.wait(self._pause)
                self._pause = min(self._pause * 2, LONGEST_PAUSE_SECONDS)

    def _list(self) -> None:
        connection, response = self._api.get(f"{self._path}?{urlencode(self._query)}", LIST_SECONDS)
        try:
            pods = _decode_list(response.read())
        finally:
            connection.close()
        self._pods = {}
        for pod in pods.items:
            self._note(pod)
        self._version = pods.metadata.resource_version
        self._tell()

    def _watch(self) -> None:
        query = {
            **self._query,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version or "",
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        connection, response = self._api.get(f"{self._path}?{urlencode(query)}", SILENCE_SECONDS)
        try:
            while not self._stopped.is_set():
                line = response.readline()
                if not line:
                    return
                self._pause = FIRST_PAUSE_SECONDS
                self._event(_decode_event(line))
        finally:
            connection.close()

    def _event(self, event: _Event) -> None:
        if event.type == "ERROR":
            status = _decode_status(event.object)
            if status.code == 410:
                raise ExpiredError
            raise OSError(f"watch error {status.code}: {status.message}")
        if event.type == "BOOKMARK":
            self._version = _decode_bookmark(event.object).metadata.resource_version
            return
        pod = _decode_pod(event.object)
        if event.type == "DELETED":
            self._pods.pop(pod.metadata.name, None)
        else:
            self._note(pod)
        self._version = pod.metadata.resource_version
        self._tell()

    def _note(self, pod: KubernetesPod) -> None:
        ours = from_kubernetes(pod)
        if ours is None:
            self._pods.pop(pod.metadata.name, None)
        else:
            self._pods[pod.metadata.name] = ours

    def _tell(self) -> None:
        pods = tuple(self._pods[name] for name in sorted(self._pods))
        if pods != self._told:
            self._told = pods
            self._found(pods)

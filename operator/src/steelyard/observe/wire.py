"""HTTP to the API server: the `kubernetes` package finds it, proves who we are and keeps the connections.

Its generated models and the layer that serializes them are left aside, since a manifest is a dictionary from the builder to
the wire and that layer takes more CPU than the exchange itself.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from kubernetes import config
from kubernetes.client import Configuration
from kubernetes.client.rest import RESTClientObject
from urllib3 import Timeout
from urllib3.exceptions import HTTPError

TOKEN_SECONDS = 10.0  # a token is replaced many minutes before it ends


class NoServer(Exception):
    """It is not known where the API server is, or how to be let in."""


class Broken(OSError):
    """There was no answer: nobody listens, the connection ended, the time ran out, or what came is not HTTP."""


@dataclass(frozen=True)
class Answer:
    """A whole answer; `sent` and `received` count the bytes of the two bodies."""

    status: int
    body: bytes
    sent: int
    received: int


class Wire:
    """The connections to one server; safe to share between threads."""

    def __init__(
        self, configuration: Configuration, timeout_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._configuration = configuration
        self._pool = RESTClientObject(configuration).pool_manager.connection_from_url(configuration.host)
        self._prefix = urlsplit(configuration.host).path.rstrip("/")
        self._timeout = Timeout(timeout_seconds)
        self._clock = clock
        self._bearer: dict[str, str] = {}
        self._renewed = float("-inf")  # when the package was asked for the token last

    def exchange(self, method: str, target: str, headers: Mapping[str, str], body: bytes = b"") -> Answer:
        """Send one request and read its answer; raises `Broken`. Repeating is the work queue's business."""
        try:
            # The pool of the one host: finding it anew by URL takes a quarter of the call's CPU.
            answer = self._pool.urlopen(
                method,
                self._prefix + target,
                body=body or None,
                headers={**headers, **self._credentials()},
                timeout=self._timeout,
                retries=False,
                redirect=False,
                assert_same_host=False,
            )
        except HTTPError as failure:
            raise Broken(str(failure) or type(failure).__name__) from failure
        return Answer(answer.status, answer.data, len(body), len(answer.data))

    @contextmanager
    def stream(
        self, target: str, headers: Mapping[str, str], silence_seconds: float
    ) -> Iterator[tuple[int, Iterator[bytes]]]:
        """Send a GET; give the status, and the answer's lines as they come. The connection ends with the block.

        Raises `Broken`, also from the lines, and where nothing came for `silence_seconds`.
        """
        try:
            answer = self._pool.urlopen(
                "GET",
                self._prefix + target,
                headers={**headers, **self._credentials()},
                timeout=Timeout(connect=self._timeout.connect_timeout, read=silence_seconds),
                retries=False,
                redirect=False,
                assert_same_host=False,
                preload_content=False,
            )
            try:
                yield answer.status, _lines(answer.stream())
            finally:
                answer.close()
        except HTTPError as failure:
            raise Broken(str(failure) or type(failure).__name__) from failure

    def _credentials(self) -> dict[str, str]:
        """Give the bearer token, renewed by the package where it lies in a file; certificates belong to the connection.

        The package sets everything anew whenever it is asked, which takes a quarter of a call's CPU, so it is asked seldom.
        """
        if self._clock() >= self._renewed + TOKEN_SECONDS:
            token = self._configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
            self._bearer = {"Authorization": token} if token else {}
            self._renewed = self._clock()
        return self._bearer


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Put pieces together and cut them at line ends; what follows the last one is a line too."""
    begun = b""
    for piece in pieces:
        *whole, begun = (begun + piece).split(b"\n")
        yield from whole
    if begun:
        yield begun


def find(kubeconfig: str | None = None) -> Configuration:
    """Find the server by a kubeconfig file; without one by the pod's service account, or else by the default kubeconfig."""
    configuration = Configuration()
    try:
        if kubeconfig is not None:
            config.load_kube_config(config_file=kubeconfig, client_configuration=configuration)  # type: ignore[no-untyped-call]
            return configuration
        try:
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        except config.ConfigException:
            config.load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    except (config.ConfigException, OSError) as failure:
        raise NoServer(f"neither a pod's service account nor a usable kubeconfig was found: {failure}") from failure
    return configuration

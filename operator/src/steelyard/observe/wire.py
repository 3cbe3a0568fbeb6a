"""HTTP to the API server: the `kubernetes` package finds it, proves who we are and keeps the connections.

Its generated models and the layer that serializes them are left aside, since a manifest is a dictionary from the builder to
the wire and that layer takes more CPU than the exchange itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from kubernetes import config
from kubernetes.client import Configuration
from kubernetes.client.rest import RESTClientObject
from urllib3 import Timeout
from urllib3.exceptions import HTTPError


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

    def __init__(self, configuration: Configuration, timeout_seconds: float) -> None:
        self._configuration = configuration
        self._pool = RESTClientObject(configuration).pool_manager.connection_from_url(configuration.host)
        self._prefix = urlsplit(configuration.host).path.rstrip("/")
        self._timeout = Timeout(timeout_seconds)

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

    def _credentials(self) -> dict[str, str]:
        """Give the bearer token, renewed by the package where it lies in a file; certificates belong to the connection."""
        token = self._configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        return {"Authorization": token} if token else {}


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

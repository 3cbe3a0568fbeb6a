"""The one narrow door to the API server: plain dictionaries over the `kubernetes` client's connection and credentials.

The client's generated models are left aside: a manifest is a dictionary from the builder to the wire. Every failure
becomes one of the errors below, so that callers decide by type and never by parsing text:

    ApiError
    ├── Missing        404: the object or its kind is not there
    ├── Conflict       409: somebody else was faster, or the precondition no longer holds
    ├── Denied         401 and 403: the operator's rights do not cover the call
    ├── Malformed      400 and 422: the API server understands the object and refuses it
    ├── NotLeading     the guard said no: this replica must not write now; nothing was sent
    └── Unreachable    429, 5xx, a time-out or a broken connection: try again later
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import urllib3
from kubernetes import config
from kubernetes.client import ApiClient, Configuration
from kubernetes.client.exceptions import ApiException

from steelyard.observe.resources import Resource

Body = dict[str, Any]

APPLY_PATCH = "application/apply-patch+yaml"
LIST_CHUNK = 500


class ApiError(Exception):
    """An answer of the API server that is not a success; `status` is the HTTP status, 0 where none came back."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Missing(ApiError):
    pass


class Conflict(ApiError):
    pass


class Denied(ApiError):
    pass


class Malformed(ApiError):
    pass


class NotLeading(ApiError):
    pass


class Unreachable(ApiError):
    pass


_BY_STATUS: Mapping[int, type[ApiError]] = {
    400: Malformed,
    401: Denied,
    403: Denied,
    404: Missing,
    409: Conflict,
    422: Malformed,
    429: Unreachable,
}


def error_of(status: int, message: str) -> ApiError:
    """Choose the error's type by HTTP status.

    An object with a field that the schema lacks is answered with 500 by server-side apply; no repetition will help,
    so it counts as malformed.
    """
    if status >= 500 and "field not declared in schema" in message:
        return Malformed(status, message)
    return _BY_STATUS.get(status, Unreachable if status >= 500 else ApiError)(status, message)


class Api:
    """Reads and writes of whole objects; blocking, safe to share between threads.

    `may_write` is asked before every write, so that a replica that lost its lease stops in the middle of a reconcile.
    """

    def __init__(
        self, client: ApiClient, may_write: Callable[[], bool] = lambda: True, timeout_seconds: float = 30
    ) -> None:
        self._client = client
        self._may_write = may_write
        self._timeout = timeout_seconds

    def get(self, resource: Resource, namespace: str | None, name: str) -> Body:
        return self._call("GET", resource.path(namespace, name))

    def find(self, resource: Resource, namespace: str | None, name: str) -> Body | None:
        """Read an object that may not exist."""
        try:
            return self.get(resource, namespace, name)
        except Missing:
            return None

    def list(self, resource: Resource, namespace: str | None, labels: str | None = None) -> Sequence[Body]:
        """Read a whole collection, in chunks; kind and apiVersion, which lists leave out, are filled in."""
        found: list[Body] = []
        token = ""
        while True:
            query = [("limit", str(LIST_CHUNK))]
            query += [("labelSelector", labels)] if labels else []
            query += [("continue", token)] if token else []
            page = self._call("GET", resource.path(namespace), query=query)
            kind = {"apiVersion": resource.api_version, "kind": resource.kind}
            found += [{**kind, **item} for item in page.get("items") or []]
            token = page.get("metadata", {}).get("continue") or ""
            if not token:
                return found

    def apply(
        self, resource: Resource, body: Body, manager: str, subresource: str | None = None, rehearse: bool = False
    ) -> Body:
        """Server-side apply, by force: what `body` says is ours, whoever held it before.

        With `rehearse` the API server judges and answers as if, and stores nothing.
        """
        meta = body["metadata"]
        query = [("fieldManager", manager), ("force", "true")]
        query += [("dryRun", "All")] if rehearse else []
        path = resource.path(meta.get("namespace"), meta["name"], subresource)
        return self._write("PATCH", path, body=body, query=query, content_type=APPLY_PATCH)

    def create(self, resource: Resource, body: Body, manager: str) -> Body:
        path = resource.path(body["metadata"].get("namespace"))
        return self._write("POST", path, body=body, query=[("fieldManager", manager)])

    def replace(self, resource: Resource, body: Body, manager: str) -> Body:
        """Write the whole object; its resourceVersion makes a change in between a `Conflict`."""
        meta = body["metadata"]
        return self._write(
            "PUT", resource.path(meta.get("namespace"), meta["name"]), body=body, query=[("fieldManager", manager)]
        )

    def delete(self, resource: Resource, namespace: str | None, name: str, uid: str) -> None:
        """Delete exactly the object with this uid; one that is gone already is a success."""
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid},
            "propagationPolicy": "Background",
        }
        try:
            self._write("DELETE", resource.path(namespace, name), body=options)
        except Missing:
            return

    def _write(self, method: str, path: str, **call: Any) -> Body:
        if not self._may_write():
            raise NotLeading(0, f"{method} {path} was not sent: this replica does not hold the lease")
        return self._call(method, path, **call)

    def _call(
        self,
        method: str,
        path: str,
        body: Body | None = None,
        query: Sequence[tuple[str, str]] = (),
        content_type: str = "application/json",
    ) -> Body:
        request = self._client.param_serialize(
            method,
            path,
            query_params=[*query],
            header_params={"Accept": "application/json", "Content-Type": content_type},
            body=body,
            auth_settings=["BearerToken"],
        )
        try:
            answer = self._client.call_api(*request, _request_timeout=self._timeout)
            data: bytes = answer.read()  # type: ignore[no-untyped-call]
        except (ApiException, urllib3.exceptions.HTTPError, OSError) as failure:
            status = getattr(failure, "status", None) or 0
            raise (error_of(status, str(failure)) if status else Unreachable(0, f"{method} {path}: {failure}")) from (
                failure
            )
        if not 200 <= answer.status < 300:
            raise error_of(answer.status, _message(data) or f"{method} {path}: HTTP {answer.status}")
        parsed: Body = json.loads(data)
        return parsed


def _message(data: bytes) -> str:
    """Take the sentence out of a `Status` object; anything else is given as text."""
    try:
        status = json.loads(data)
    except ValueError:
        return data.decode(errors="replace")[:500]
    return str(status.get("message") or "") if isinstance(status, dict) else ""


def connect(kubeconfig: str | None = None, may_write: Callable[[], bool] = lambda: True) -> Api:
    """Open the API by the pod's service account, or by a kubeconfig file (the default one where there is no pod)."""
    configuration = Configuration()
    if kubeconfig is not None:
        config.load_kube_config(config_file=kubeconfig, client_configuration=configuration)  # type: ignore[no-untyped-call]
    else:
        try:
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        except config.ConfigException:
            config.load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    configuration.retries = False  # the work queue owns retries
    return Api(ApiClient(configuration), may_write)

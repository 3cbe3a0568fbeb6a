"""The one narrow door to the API server: plain dictionaries, from the builder to the wire and back.

Every failure becomes one of the errors below, so that callers decide by type and never by parsing text:

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
from functools import lru_cache
from typing import Any
from urllib.parse import quote_plus

from msgspec.json import decode

from steelyard.observe.resources import Resource
from steelyard.observe.wire import Answer, Wire, find

Body = dict[str, Any]

APPLY_PATCH = "application/apply-patch+yaml"
MERGE_PATCH = "application/merge-patch+json"
LIST_CHUNK = 500
TIMEOUT_SECONDS = 30.0
USER_AGENT = "steelyard-operator"
HEADERS = {"Accept": "application/json", "User-Agent": USER_AGENT}


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

    `may_write` is asked before every write, so that a replica that lost its lease stops in the middle of a reconcile;
    `told` hears of every answer, with the method that was asked.
    """

    def __init__(
        self,
        wire: Wire,
        may_write: Callable[[], bool] = lambda: True,
        told: Callable[[str, Answer], None] = lambda method, answer: None,
    ) -> None:
        self._wire = wire
        self._may_write = may_write
        self._told = told

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
        kind = {"apiVersion": resource.api_version, "kind": resource.kind}
        query = [("limit", str(LIST_CHUNK)), *([("labelSelector", labels)] if labels else [])]
        found: list[Body] = []
        page = self._call("GET", resource.path(namespace), query=query)
        while True:
            found += [{**kind, **item} for item in page.get("items") or []]
            token = page.get("metadata", {}).get("continue")
            if not token:
                return found
            page = self._call("GET", resource.path(namespace), query=[*query, ("continue", token)])

    def log(self, resource: Resource, namespace: str, pod: str, container: str, lines: int, size: int) -> str:
        """Read the last lines of a container's log, at most `size` bytes of them."""
        query = [("container", container), ("tailLines", str(lines)), ("limitBytes", str(size))]
        return self._ask("GET", resource.path(namespace, pod, "log"), query=query).body.decode(errors="replace")

    def ask_for(self, resource: Resource, namespace: str | None) -> None:
        """Read at most one object; `Missing` where the kind is not installed, and the other errors as ever."""
        self._call("GET", resource.path(namespace), query=[("limit", "1")])

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

    def merge(self, resource: Resource, namespace: str | None, name: str, uid: str, change: Body, manager: str) -> Body:
        """Change some fields of exactly the object with this uid; None removes a field. Another object of the name is a
        `Conflict`, none at all is `Missing`."""
        meta = {**change.get("metadata", {}), "uid": uid}
        body, query = {**change, "metadata": meta}, [("fieldManager", manager)]
        return self._write("PATCH", resource.path(namespace, name), body=body, query=query, content_type=MERGE_PATCH)

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
        headers, data = HEADERS, b""
        if body is not None:
            headers = {**HEADERS, "Content-Type": content_type}
            data = json.dumps(body, separators=(",", ":")).encode()
        parsed: Body = decode(self._ask(method, path, query, headers, data).body)
        return parsed

    def _ask(
        self,
        method: str,
        path: str,
        query: Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str] = HEADERS,
        data: bytes = b"",
    ) -> Answer:
        """Send one request; give the answer if it is a good one."""
        try:
            answer = self._wire.exchange(method, _target(path, query), headers, data)
        except OSError as failure:
            raise Unreachable(0, f"{method} {path}: {failure or type(failure).__name__}") from failure
        self._told(method, answer)
        if not 200 <= answer.status < 300:
            raise error_of(answer.status, message_of(answer.body) or f"{method} {path}: HTTP {answer.status}")
        return answer


def _target(path: str, query: Sequence[tuple[str, str]]) -> str:
    return path + "?" + "&".join(f"{name}={_quoted(value)}" for name, value in query) if query else path


@lru_cache(maxsize=4096)
def _quoted(value: str) -> str:
    """Quote a value; selectors come again with every look, and quoting goes letter by letter."""
    return quote_plus(value)


def message_of(data: bytes) -> str:
    """Take the sentence out of a `Status` object; anything else is given as text."""
    try:
        status = json.loads(data)
    except ValueError:
        return data.decode(errors="replace")[:500]
    return str(status.get("message") or "") if isinstance(status, dict) else ""


def connect(
    kubeconfig: str | None = None,
    may_write: Callable[[], bool] = lambda: True,
    told: Callable[[str, Answer], None] = lambda method, answer: None,
) -> Api:
    """Open the API by the pod's service account, or by a kubeconfig file (the default one where there is no pod).

    Raises `NoServer` where neither says how.
    """
    return Api(Wire(find(kubeconfig), TIMEOUT_SECONDS), may_write, told)

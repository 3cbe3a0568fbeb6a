"""The API client against a real HTTP server on the loopback: what it sends, and how answers become errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from kubernetes.client import Configuration
from steelyard.apply.scale import scale
from steelyard.observe.client import Api, ApiError, Conflict, Denied, Malformed, Missing, NotLeading, Unreachable
from steelyard.observe.resources import ACCELERATOR, BY_KIND, DEPLOYMENT, INFERENCE_SERVICE, POD
from steelyard.observe.wire import TOKEN_SECONDS, Answer, NoServer, Wire, find


class Server:
    """Answers from a list, and remembers the requests."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, Any]] = []
        self.requests: list[tuple[str, str, dict[str, list[str]], str, Any]] = []
        self.tokens: list[str | None] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                url = urlsplit(self.path)
                kind = self.headers.get("Content-Type") or ""
                outer.tokens.append(self.headers.get("Authorization"))
                outer.requests.append((self.command, url.path, parse_qs(url.query), kind, body))
                status, reply = outer.answers.pop(0)
                data = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_PATCH = do_POST = do_PUT = do_DELETE = answer

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self.http.serve_forever, daemon=True).start()


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    yield found
    found.http.shutdown()


def api(server: Server, **options: Any) -> Api:
    configuration = Configuration(host=f"http://127.0.0.1:{server.http.server_address[1]}")
    return Api(Wire(configuration, timeout_seconds=10), **options)


@pytest.mark.parametrize(
    ("resource", "namespace", "name", "sub", "path"),
    [
        (POD, "ns", "p", None, "/api/v1/namespaces/ns/pods/p"),
        (POD, None, None, None, "/api/v1/pods"),
        (DEPLOYMENT, "ns", "d", "scale", "/apis/apps/v1/namespaces/ns/deployments/d/scale"),
        (ACCELERATOR, "ignored", "h200", None, "/apis/serving.steelyard.dev/v1alpha1/accelerators/h200"),
    ],
)
def test_paths(resource: Any, namespace: str | None, name: str | None, sub: str | None, path: str) -> None:
    assert resource.path(namespace, name, sub) == path


def test_server_side_apply(server: Server) -> None:
    server.answers.append((200, {"ok": True}))
    body = {"kind": "Service", "metadata": {"name": "s", "namespace": "ns"}}
    assert api(server).apply(BY_KIND["Service"], body, "steelyard") == {"ok": True}
    method, path, query, kind, sent = server.requests[0]
    assert (method, path) == ("PATCH", "/api/v1/namespaces/ns/services/s")
    assert query == {"fieldManager": ["steelyard"], "force": ["true"]}
    assert kind == "application/apply-patch+yaml"
    assert sent == body


def test_a_rehearsal_asks_the_server_to_store_nothing(server: Server) -> None:
    server.answers.append((200, {}))
    body = {"kind": "Service", "metadata": {"name": "s", "namespace": "ns"}}
    api(server).apply(BY_KIND["Service"], body, "steelyard", rehearse=True)
    assert server.requests[0][2]["dryRun"] == ["All"]


def test_a_scale_is_applied_too_so_that_its_owner_is_recorded(server: Server) -> None:
    server.answers.append((200, {}))
    scale(api(server), "ns", "d", 2)
    method, path, query, kind, sent = server.requests[0]
    assert (method, path) == ("PATCH", "/apis/apps/v1/namespaces/ns/deployments/d/scale")
    assert query == {"fieldManager": ["steelyard-scaler"], "force": ["true"]}
    assert kind == "application/apply-patch+yaml"
    assert (sent["kind"], sent["spec"]) == ("Scale", {"replicas": 2})


def test_a_list_is_read_in_chunks_and_its_items_know_their_kind(server: Server) -> None:
    server.answers += [
        (200, {"items": [{"metadata": {"name": "a"}}], "metadata": {"continue": "t1"}}),
        (200, {"items": [{"metadata": {"name": "b"}}], "metadata": {}}),
    ]
    found = api(server).list(POD, "ns", "x=y")
    assert [(body["kind"], body["metadata"]["name"]) for body in found] == [("Pod", "a"), ("Pod", "b")]
    assert server.requests[1][2]["continue"] == ["t1"]
    assert server.requests[0][2]["labelSelector"] == ["x=y"]


def test_every_answer_is_told_with_its_bytes(server: Server) -> None:
    server.answers += [(200, {"items": []}), (404, {"message": "gone"})]
    told: list[tuple[str, int, int, int]] = []

    def tell(method: str, answer: Answer) -> None:
        told.append((method, answer.status, answer.sent, answer.received))

    client = api(server, told=tell)
    client.list(POD, "ns")
    client.delete(POD, "ns", "p", uid="u")
    assert [(method, status) for method, status, _, _ in told] == [("GET", 200), ("DELETE", 404)]
    assert told[0][2:] == (0, len('{"items": []}'))
    assert told[1][2] >= len('{"preconditions": {"uid": "u"}}')


def test_deletion_carries_the_uid(server: Server) -> None:
    server.answers += [(200, {}), (404, {"message": "gone"})]
    client = api(server)
    client.delete(POD, "ns", "p", uid="u1")
    client.delete(POD, "ns", "p", uid="u1")
    assert server.requests[0][4]["preconditions"] == {"uid": "u1"}


@pytest.mark.parametrize(
    ("status", "message", "error"),
    [
        (404, "not found", Missing),
        (409, "modified", Conflict),
        (401, "who", Denied),
        (403, "forbidden", Denied),
        (400, "bad", Malformed),
        (422, "invalid", Malformed),
        (500, "failed: .spec.foo: field not declared in schema", Malformed),
        (500, "etcd", Unreachable),
        (503, "later", Unreachable),
        (429, "slow down", Unreachable),
        (418, "teapot", ApiError),
    ],
)
def test_answers_become_typed_errors(server: Server, status: int, message: str, error: type[ApiError]) -> None:
    server.answers.append((status, {"kind": "Status", "message": message}))
    with pytest.raises(ApiError) as failure:
        api(server).get(INFERENCE_SERVICE, "ns", "chat")
    assert type(failure.value) is error
    assert str(failure.value) == message
    assert failure.value.status == status


def test_an_answer_that_is_no_json_is_given_as_text(server: Server) -> None:
    server.answers.append((502, b"<html>bad gateway</html>"))
    with pytest.raises(Unreachable, match="bad gateway"):
        api(server).get(POD, "ns", "p")


def test_nobody_listening_is_unreachable(server: Server) -> None:
    client = api(server)
    server.http.shutdown()
    server.http.server_close()
    with pytest.raises(Unreachable) as failure:
        client.get(POD, "ns", "p")
    assert failure.value.status == 0


def test_a_replica_without_the_lease_sends_no_write(server: Server) -> None:
    server.answers.append((200, {"metadata": {}}))
    client = api(server, may_write=lambda: False)
    client.get(POD, "ns", "p")
    with pytest.raises(NotLeading):
        client.delete(POD, "ns", "p", uid="u")
    with pytest.raises(NotLeading):
        client.apply(POD, {"metadata": {"name": "p", "namespace": "ns"}}, "steelyard")
    assert [request[0] for request in server.requests] == ["GET"]


def test_a_token_that_somebody_renews_is_sent_as_it_is_now(server: Server) -> None:
    tokens = iter(["old", "new"])
    configuration = Configuration(host=f"http://127.0.0.1:{server.http.server_address[1]}")
    configuration.api_key_prefix["authorization"] = "Bearer"
    configuration.api_key["authorization"] = "none"
    configuration.refresh_api_key_hook = lambda own: own.api_key.update(authorization=next(tokens))
    server.answers += [(200, {})] * 3
    now = 0.0
    client = Api(Wire(configuration, timeout_seconds=10, clock=lambda: now))
    for now in (0.0, TOKEN_SECONDS - 1, TOKEN_SECONDS):  # noqa: B007 (the clock reads it)
        client.get(POD, "ns", "p")
    assert server.tokens == ["Bearer old", "Bearer old", "Bearer new"]


def test_without_a_pod_and_a_kubeconfig_nothing_can_be_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(NoServer, match="neither a pod's service account nor a usable kubeconfig"):
        find(str(tmp_path / "missing"))


def test_an_api_server_below_a_path_is_asked_there(server: Server) -> None:
    server.answers.append((200, {}))
    configuration = Configuration(host=f"http://127.0.0.1:{server.http.server_address[1]}/clusters/one/")
    Api(Wire(configuration, timeout_seconds=10)).get(POD, "ns", "p")
    assert server.requests[0][1] == "/clusters/one/api/v1/namespaces/ns/pods/p"

"""Watches of children against a real HTTP server on the loopback: what is asked, what is told, and where one goes on."""

from __future__ import annotations

import json
import queue
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from kubernetes.client import Configuration
from steelyard.observe import watch
from steelyard.observe.client import ApiError, Denied, Unreachable
from steelyard.observe.resources import POD
from steelyard.observe.watch import Watch
from steelyard.observe.wire import Wire

SELECTOR = "app.kubernetes.io/managed-by=steelyard"
LIST = {"metadata": {"resourceVersion": "7", "continue": "there is more, which is not asked for"}, "items": [{}]}
PATIENCE_SECONDS = 60.0


def event(kind: str, version: str, **meta: Any) -> dict[str, Any]:
    return {"type": kind, "object": {"kind": "PartialObjectMetadata", "metadata": {"resourceVersion": version, **meta}}}


def gone(code: int) -> dict[str, Any]:
    return {"type": "ERROR", "object": {"kind": "Status", "code": code, "message": "too old resource version: 9 (12)"}}


class Server:
    """Answers each request with the next list of lines, in two chunks that end anywhere; then it never answers again."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, list[Any]]] = []
        self.asked: list[tuple[str, dict[str, list[str]], str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                url = urlsplit(self.path)
                outer.asked.append((url.path, parse_qs(url.query), self.headers["Accept"]))
                if not outer.answers:
                    self.connection.settimeout(PATIENCE_SECONDS)
                    self.connection.recv(1)  # until the other side ends
                    self.close_connection = True
                    return
                status, lines = outer.answers.pop(0)
                data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
                self.send_response(status)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for piece in (data[: len(data) // 3], data[len(data) // 3 :]):
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if piece else b"")
                self.wfile.write(b"0\r\n\r\n")

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        Thread(target=self.http.serve_forever, daemon=True).start()


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    yield found
    found.http.shutdown()


class Pauses(Event):
    """What ends a watch; keeps for how long was waited for it."""

    def __init__(self) -> None:
        super().__init__()
        self.waited: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waited.append(timeout)
        return super().wait(timeout)


class Heard:
    """A watch of pods and what it tells, in order."""

    def __init__(self, server: Server, namespace: str | None = None) -> None:
        self.all: queue.Queue[Any] = queue.Queue()
        self.ended = Pauses()
        configuration = Configuration(host=f"http://127.0.0.1:{server.http.server_address[1]}")
        self.watch = Watch(
            Wire(configuration, PATIENCE_SECONDS),
            POD,
            namespace,
            SELECTOR,
            told=lambda kind, meta: self.all.put((kind, meta.get("name"))),
            missed=lambda kind: self.all.put(("missed", kind)),
            _ended=self.ended,
        )

    def next(self, count: int) -> list[Any]:
        return [self.all.get(timeout=PATIENCE_SECONDS) for _ in range(count)]


def test_a_watch_begins_now_and_lists_nothing(server: Server) -> None:
    server.answers.append((200, [LIST]))
    heard = Heard(server, "team-a")
    assert heard.watch.begin() == "7"
    assert heard.next(1) == [("missed", "Pod")]
    path, query, accept = server.asked[0]
    assert path == "/api/v1/namespaces/team-a/pods"
    assert query == {"labelSelector": [SELECTOR], "limit": ["1"]}
    assert accept == "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


def test_changes_are_told_with_their_metadata_and_marks_are_not(server: Server) -> None:
    lines = [event("ADDED", "8", name="a"), event("BOOKMARK", "11"), event("DELETED", "12", name="b")]
    server.answers.append((200, lines))
    heard = Heard(server)
    assert list(heard.watch.follow("7")) == ["8", "11", "12"]
    assert heard.next(2) == [("Pod", "a"), ("Pod", "b")]
    path, query, accept = server.asked[0]
    assert (path, query["watch"], query["resourceVersion"]) == ("/api/v1/pods", ["1"], ["7"])
    assert accept == "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


@pytest.mark.parametrize(
    ("answer", "error", "status"),
    [
        ((200, [gone(410)]), ApiError, 410),
        ((410, [{"kind": "Status", "message": "expired"}]), ApiError, 410),
        ((403, [{"kind": "Status", "message": "may not watch"}]), Denied, 403),
        ((500, []), Unreachable, 500),
    ],
)
def test_what_the_api_server_refuses(server: Server, answer: Any, error: type[ApiError], status: int) -> None:
    server.answers.append(answer)
    with pytest.raises(error) as raised:
        list(Heard(server).watch.follow("7"))
    assert raised.value.status == status


def test_nobody_listens() -> None:
    lonely = Server()
    heard = Heard(lonely)
    lonely.http.shutdown()
    lonely.http.server_close()
    with pytest.raises(Unreachable):
        heard.watch.begin()


def test_a_watch_goes_on_where_it_was_and_begins_anew_only_when_that_is_forgotten(server: Server) -> None:
    server.answers += [
        (200, [LIST]),
        (200, [event("MODIFIED", "8", name="a")]),  # the API server ends it, as it does every few minutes
        (500, []),
        (200, [event("MODIFIED", "9", name="b"), gone(410)]),
        (200, [{**LIST, "metadata": {"resourceVersion": "12"}}]),
        (200, [event("MODIFIED", "13", name="c")]),
    ]
    heard = Heard(server)
    heard.watch.start()
    told = heard.next(5)
    heard.watch.stop()
    assert told == [("missed", "Pod"), ("Pod", "a"), ("Pod", "b"), ("missed", "Pod"), ("Pod", "c")]
    versions = [query.get("resourceVersion", ["a list"])[0] for _, query, _ in server.asked[:6]]
    assert versions == ["a list", "7", "8", "8", "a list", "12"]


@pytest.mark.parametrize(
    ("lines", "at_once", "pauses", "because"),
    [
        ([], PATIENCE_SECONDS, [watch.FIRST_PAUSE_SECONDS] * 2, "something cuts watches, and would be asked endlessly"),
        ([], 0.0, [], "it lived its time and nothing had changed"),
        ([event("BOOKMARK", "8")], PATIENCE_SECONDS, [], "it said something"),
    ],
)
def test_only_a_watch_that_ends_at_once_without_a_word_is_opened_again_after_a_pause(
    server: Server, monkeypatch: pytest.MonkeyPatch, lines: list[Any], at_once: float, pauses: list[float], because: str
) -> None:
    monkeypatch.setattr(watch, "AT_ONCE_SECONDS", at_once)
    server.answers += [(200, [LIST]), (200, lines), (200, lines), (200, [event("MODIFIED", "9", name="a")])]
    heard = Heard(server)
    heard.watch.start()
    told = heard.next(2)
    heard.watch.stop()
    assert told == [("missed", "Pod"), ("Pod", "a")]
    assert heard.ended.waited == pauses, because


@pytest.mark.parametrize("status", [400, 410])
@pytest.mark.parametrize("inside", [False, True])
def test_a_version_that_is_refused_is_left_for_the_present_one(server: Server, status: int, inside: bool) -> None:
    refusal = (200, [gone(status)]) if inside else (status, [{"kind": "Status", "message": "no such version"}])
    server.answers += [(200, [LIST]), refusal, (200, [{**LIST, "metadata": {"resourceVersion": "12"}}])]
    server.answers.append((200, [event("MODIFIED", "13", name="a")]))
    heard = Heard(server)
    heard.watch.start()
    told = heard.next(3)
    heard.watch.stop()
    assert told == [("missed", "Pod"), ("missed", "Pod"), ("Pod", "a")]
    versions = [query.get("resourceVersion", ["a list"])[0] for _, query, _ in server.asked[:4]]
    assert versions == ["a list", "7", "a list", "12"]

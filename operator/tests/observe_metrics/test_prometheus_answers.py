"""Answers of Prometheus' API: what becomes a value, what stays unknown, and what is no answer at all."""

from __future__ import annotations

import json
import ssl
import tracemalloc
from base64 import b64decode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.parse import parse_qs

import pytest
from hypothesis import given
from hypothesis import strategies as st
from steelyard.observe.answers import Keys, Unanswered, parse
from steelyard.observe.prometheus import Access, Prometheus, Query

from e2e.certificates import certified

LABELS = ("namespace", "service")
QUERY = Query('sum by (namespace, service) (up{service!=""})', LABELS)


def row(value: str, **labels: str) -> dict[str, Any]:
    return {"metric": {"namespace": "team-a", "service": "chat", **labels}, "value": [1000.0, value]}


def answer(*rows: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": list(rows)}, **more}).encode()


@pytest.mark.parametrize(
    ("data", "values", "because"),
    [
        (answer(row("3.5")), {("team-a", "chat"): 3.5}, "a number is a value"),
        (answer(row("0")), {("team-a", "chat"): 0.0}, "a confirmed zero is a value too"),
        (answer(row("NaN")), {}, "A01 ai-dynamo/dynamo#3131: 0/0 of an idle span is unknown, not a number"),
        (answer(row("+Inf")), {}, "infinity is unknown"),
        (answer(row("-Inf")), {}, "infinity is unknown"),
        (answer(), {}, "A05 kedacore/keda#3065: an empty vector says nothing about anybody, not zero"),
        (
            answer(row("1"), row("NaN", service="mail")),
            {("team-a", "chat"): 1.0},
            "one service's gap is not another's",
        ),
    ],
)
def test_a_value_or_unknown(data: bytes, values: dict[tuple[str, ...], float], because: str) -> None:
    assert parse(200, data, LABELS) == values, because


@pytest.mark.parametrize(
    ("status", "data", "says", "because"),
    [
        (200, answer(row("0"), row("40")), "two rows for", "A50 vllm-project/production-stack: never take the first"),
        (200, answer(row("NaN"), row("40")), "two rows for", "also where the other one is no number"),
        (200, answer({"metric": {"namespace": "x"}, "value": [1, "1"]}), "another form", "a label is missing"),
        (200, answer(row("much")), "another form", "no number at all"),
        (200, answer(row("1"), warnings=["store down"]), "only a part", "half the stores are half the truth"),
        (200, b'{"status":"success","data":{"resultType":"matrix","result":[]}}', "a matrix", "not what was asked"),
        (200, b'{"status":"success"}', "another form", "no data"),
        (400, b'{"status":"error","error":"parse error"}', "HTTP 400: parse error", "its own words are passed on"),
        (502, b"<html>bad gateway</html>", "HTTP 502 without JSON", "a proxy's page"),
        (200, b"[]", "no success", "JSON of another kind"),
    ],
)
def test_no_answer_says_why(status: int, data: bytes, says: str, because: str) -> None:
    with pytest.raises(Unanswered, match=says):
        parse(status, data, LABELS)


@given(
    st.lists(
        st.dictionaries(
            st.tuples(st.sampled_from("ab"), st.sampled_from("xyz")),
            st.sampled_from((0.0, 1.5, -2.0, float("nan"), float("inf"))),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_answers_of_one_look_share_keys_and_nothing_else(vectors: list[dict[tuple[str, ...], float]]) -> None:
    """Each reads as it would alone, whichever rows the others have."""
    keys = Keys()
    texts = [answer(*(row(str(v), namespace=n, service=s) for (n, s), v in vector.items())) for vector in vectors]
    together = [parse(200, text, LABELS, keys) for text in texts]
    for found, text, vector in zip(together, texts, vectors, strict=True):
        assert found == parse(200, text, LABELS)
        assert len(found) == len(dict(found))
        for key in (("a", "x"), ("b", "z"), ("c", "x")):
            assert found.get(key) == (vector.get(key) if key in found else None)
            assert (key in found) == (key in vector and abs(vector[key]) < float("inf"))


def test_an_answer_is_never_a_tree_and_leaves_a_number_a_row() -> None:
    """Megabytes of text for a large fleet, twenty times a tick: as Python's objects they would be ten times that."""
    rows = 4000
    text = answer(*(row(str(number), service=f"chat-{number}") for number in range(rows)))
    keys = Keys()
    first = parse(200, text, LABELS, keys)

    def traced(read: Callable[[], Any]) -> tuple[Any, int, int]:
        tracemalloc.start()
        try:
            return (read(), *tracemalloc.get_traced_memory())
        finally:
            tracemalloc.stop()

    _, _, tree = traced(lambda: json.loads(text))
    found, kept, peak = traced(lambda: parse(200, text, LABELS, keys))
    assert found == first
    assert kept < 16 * rows
    assert peak < tree / 4


class Server:
    """A Prometheus that gives one answer, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, list[str]], str | None]] = []
        self.hold: Event | None = None
        self.sent: int | None = None  # bytes of an answer after which it stops
        self.released = Event()
        self.running: Thread | None = None
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                outer.asked.append((self.path, parse_qs(form), self.headers.get("Authorization")))
                if outer.hold is not None:
                    outer.hold.wait(30)
                data = answer(row("2"))
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data[: outer.sent])
                if outer.sent is not None:
                    self.wfile.flush()
                    outer.released.wait(30)

            def log_message(self, format: str, *args: object) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            def handle_error(self, request: Any, client_address: Any) -> None:
                """A client that has given up, or does not trust us, is what some tests are about."""

        self.http = Quiet(("127.0.0.1", 0), Handler)

    @property
    def port(self) -> int:
        return int(self.http.server_address[1])

    def start(self) -> None:
        self.running = Thread(target=self.http.serve_forever, daemon=True)
        self.running.start()


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    yield found
    if found.running is not None:
        found.http.shutdown()


def test_the_query_goes_as_a_form_to_the_path_under_the_address(server: Server) -> None:
    server.start()
    asked = Prometheus(f"http://127.0.0.1:{server.port}/sub/").ask(QUERY)
    assert asked == {("team-a", "chat"): 2.0}
    ((path, form, token),) = server.asked
    assert path == "/sub/api/v1/query"
    assert form["query"] == [QUERY.text]
    assert token is None


def test_the_token_is_read_anew_for_every_query(server: Server, tmp_path: Path) -> None:
    server.start()
    file = tmp_path / "token"
    prometheus = Prometheus(f"http://127.0.0.1:{server.port}", Access(file))
    with pytest.raises(Unanswered, match=r"bearerTokenFile .*token: No such file"):
        prometheus.ask(QUERY)
    for token in ("first\n", "second\n"):
        file.write_text(token)
        prometheus.ask(QUERY)
    assert [token for _, _, token in server.asked] == ["Bearer first", "Bearer second"]


def test_name_and_password_go_as_basic_authentication_and_the_password_is_read_anew(
    server: Server, tmp_path: Path
) -> None:
    server.start()
    file = tmp_path / "password"
    prometheus = Prometheus(f"http://127.0.0.1:{server.port}", Access(username="us", password_file=file))
    with pytest.raises(Unanswered, match=r"passwordFile .*password: No such file"):
        prometheus.ask(QUERY)
    for password in ("first\n", "zweites: ß\n"):
        file.write_text(password)
        prometheus.ask(QUERY)
    sent = [b64decode((header or "").removeprefix("Basic ")).decode() for _, _, header in server.asked]
    assert sent == ["us:first", "us:zweites: ß"]


def test_a_server_that_does_not_answer_is_given_up(server: Server) -> None:
    server.hold = Event()
    server.start()
    try:
        with pytest.raises(Unanswered, match="does not answer"):
            Prometheus(f"http://127.0.0.1:{server.port}", timeout_seconds=0.2).ask(QUERY)
    finally:
        server.hold.set()


def test_answers_that_are_awaited_at_the_same_time_are_all_read(server: Server) -> None:
    server.start()
    look = Prometheus(f"http://127.0.0.1:{server.port}").look()
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(look, [QUERY] * 40)) == [{("team-a", "chat"): 2.0}] * 40


def test_an_answer_that_breaks_off_ends_its_look_and_no_other(server: Server) -> None:
    """Each of twenty answers might take its whole time otherwise, one after the other."""
    server.sent = 10
    server.start()
    prometheus = Prometheus(f"http://127.0.0.1:{server.port}", timeout_seconds=0.2)
    look = prometheus.look()
    for _ in range(3):
        with pytest.raises(Unanswered, match="does not answer"):
            look(QUERY)
    assert len(server.asked) == 1
    server.released.set()
    server.sent = None
    assert prometheus.look()(QUERY) == {("team-a", "chat"): 2.0}


def test_a_server_that_is_not_there(server: Server) -> None:
    server.http.server_close()
    with pytest.raises(Unanswered, match="does not answer"):
        Prometheus(f"http://127.0.0.1:{server.port}").ask(QUERY)


def test_the_certificate_is_checked_against_the_given_authorities(server: Server, tmp_path: Path) -> None:
    certificate, key = certified(tmp_path, "right")
    stranger, _ = certified(tmp_path, "stranger")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.http.socket = context.wrap_socket(server.http.socket, server_side=True)
    server.start()
    address = f"https://127.0.0.1:{server.port}"
    assert Prometheus(address, Access(ca_file=certificate)).ask(QUERY) == {("team-a", "chat"): 2.0}
    for wrong in (stranger, None):
        with pytest.raises(Unanswered, match=r"does not answer.*certificate"):
            Prometheus(address, Access(ca_file=wrong)).ask(QUERY)

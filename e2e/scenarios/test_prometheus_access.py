"""A real Prometheus that lets nobody in without TLS or a token, as the operator's client meets it.

Prometheus itself knows certificates and passwords (its web configuration file); bearer tokens are what proxies before it ask
for, so one stands here too. No cluster is needed, only the program, which `make test` builds.
"""

from __future__ import annotations

import http.server
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from steelyard.observe.answers import Unanswered
from steelyard.observe.prometheus import Access, Prometheus, Query

from e2e.certificates import certified
from e2e.monitoring.loopback import READY_SECONDS, serving

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]  # the first time the program is built

QUERY = Query('label_replace(vector(7), "service", "chat", "", "")', ("service",))
ANSWER = {("chat",): 7.0}
PASSWORD, PASSWORD_HASH = "open sesame", "$2b$04$p9lGsRoOiqNKu6651/L5X.68UnF1f8dalc0GWFTlWo4xkP0W3ID.u"


def until_answered(ask: Callable[[], object]) -> object:
    """A listener is open before its store is ready: such an answer is asked for again."""
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            return ask()
        except Unanswered as failure:
            if "503" not in str(failure) or time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def test_tls_by_its_web_configuration_is_met_with_the_given_authorities_only(tmp_path: Path) -> None:
    certificate, key = certified(tmp_path, "right")
    stranger, _ = certified(tmp_path, "stranger")
    web = {"tls_server_config": {"cert_file": str(certificate), "key_file": str(key)}}
    with serving(tmp_path, web=web) as port:
        url = f"https://127.0.0.1:{port}"
        assert until_answered(lambda: Prometheus(url, Access(ca_file=certificate)).ask(QUERY)) == ANSWER
        for wrong in (stranger, None):
            with pytest.raises(Unanswered, match="certificate"):
                Prometheus(url, Access(ca_file=wrong)).ask(QUERY)
        with pytest.raises(Unanswered):
            Prometheus(f"http://127.0.0.1:{port}").ask(QUERY)


def test_a_server_that_wants_a_password_gets_the_files_or_is_told_as_refusing(tmp_path: Path) -> None:
    """Without the right one it is never taken for an empty store."""
    file = tmp_path / "password"
    with serving(tmp_path, web={"basic_auth_users": {"somebody": PASSWORD_HASH}}) as port:
        url = f"http://127.0.0.1:{port}"
        for wrong in (
            Access(),
            Access(username="somebody", password_file=file),
            Access(username="else", password_file=file),
        ):
            file.write_text("something else")
            with pytest.raises(Unanswered, match="401"):
                until_answered(partial(Prometheus(url, wrong).ask, QUERY))
        file.write_text(f"{PASSWORD}\n")
        right = Prometheus(url, Access(username="somebody", password_file=file))
        assert until_answered(lambda: right.ask(QUERY)) == ANSWER


def test_a_proxy_before_it_gets_the_token_of_the_file_as_it_is_now(tmp_path: Path) -> None:
    certificate, key = certified(tmp_path, "proxy")
    token = tmp_path / "token"
    token.write_text("first\n")
    with serving(tmp_path) as port, guarded(port, certificate, key) as (door, accepted):
        accepted.append("first")
        prometheus = Prometheus(f"https://127.0.0.1:{door}", Access(token, ca_file=certificate))
        assert until_answered(lambda: prometheus.ask(QUERY)) == ANSWER
        accepted[:] = ["second"]
        with pytest.raises(Unanswered, match="401"):
            prometheus.ask(QUERY)
        token.write_text("second\n")
        assert prometheus.ask(QUERY) == ANSWER


@contextmanager
def guarded(port: int, certificate: Path, key: Path) -> Iterator[tuple[int, list[str]]]:
    """A proxy with TLS before a port, that passes requests with an accepted token on; gives its own port, and the tokens."""
    accepted: list[str] = []

    class Door(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *words: object) -> None:
            pass

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            status, answer = 401, b"who are you?"
            if self.headers.get("authorization") in {f"Bearer {token}" for token in accepted}:
                kind = {"content-type": self.headers["content-type"]}
                request = urllib.request.Request(f"http://127.0.0.1:{port}{self.path}", body, kind)
                try:
                    with urllib.request.urlopen(request, timeout=10) as found:
                        status, answer = found.status, found.read()
                except urllib.error.HTTPError as error:
                    status, answer = error.code, error.read()
            self.send_response(status)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Door)
    server.daemon_threads = True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield int(server.server_address[1]), accepted
    finally:
        server.shutdown()
        server.server_close()

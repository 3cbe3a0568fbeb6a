"""A real Prometheus that lets nobody in without TLS or a token, as the operator's client meets it.

Prometheus itself knows certificates and passwords (its web configuration file); bearer tokens are what proxies before it ask
for, so one stands here too. No cluster is needed, only the program, which `make test` builds.
"""

from __future__ import annotations

import http.server
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from rich.console import Console
from steelyard.observe.prometheus import Prometheus, Query, Unanswered

from e2e.cluster import build
from e2e.cluster.programs import PROMETHEUS

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]  # the first time the program is built

QUERY = Query('label_replace(vector(7), "service", "chat", "", "")', ("service",))
ANSWER = {("chat",): 7.0}
PASSWORD_HASH = "$2b$04$pLlA8KpmpZV4vzXNQXbm3u6MOo0GAb34fFBMnjNeq8CUsoOI5GWTG"  # of what nobody sends
READY_SECONDS = 120


@pytest.fixture(scope="module")
def program() -> Path:
    return build.ensure(Console(file=sys.__stderr__), [PROMETHEUS])[PROMETHEUS.name]


def certified(folder: Path, name: str) -> tuple[Path, Path]:
    """A certificate for this machine that is its own authority, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = folder / f"{name}.crt", folder / f"{name}.key"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    form, unlocked = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    paths[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, form, unlocked))
    return paths


@contextmanager
def serving(program: Path, folder: Path, web: Mapping[str, object]) -> Iterator[int]:
    """Prometheus with a web configuration; gives its port once it answers, if only that nobody may enter."""
    (folder / "prometheus.yml").write_text("global: {}\n")
    (folder / "web.yml").write_text(yaml.safe_dump(web))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    command = [
        *(str(program), f"--config.file={folder / 'prometheus.yml'}", f"--web.config.file={folder / 'web.yml'}"),
        *(f"--storage.tsdb.path={folder / 'store'}", f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"),
    ]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            await_listener(port, process, folder / "log")
            yield port
        finally:
            process.terminate()


def await_listener(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)


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


def test_tls_by_its_web_configuration_is_met_with_the_given_authorities_only(program: Path, tmp_path: Path) -> None:
    certificate, key = certified(tmp_path, "right")
    stranger, _ = certified(tmp_path, "stranger")
    web = {"tls_server_config": {"cert_file": str(certificate), "key_file": str(key)}}
    with serving(program, tmp_path, web) as port:
        url = f"https://127.0.0.1:{port}"
        assert until_answered(lambda: Prometheus(url, ca_file=certificate).ask(QUERY)) == ANSWER
        for wrong in (stranger, None):
            with pytest.raises(Unanswered, match="certificate"):
                Prometheus(url, ca_file=wrong).ask(QUERY)
        with pytest.raises(Unanswered):
            Prometheus(f"http://127.0.0.1:{port}").ask(QUERY)


def test_a_server_that_wants_a_password_is_told_as_refusing_and_never_taken_for_empty(
    program: Path, tmp_path: Path
) -> None:
    with (
        serving(program, tmp_path, {"basic_auth_users": {"somebody": PASSWORD_HASH}}) as port,
        pytest.raises(Unanswered, match="401"),
    ):
        until_answered(lambda: Prometheus(f"http://127.0.0.1:{port}").ask(QUERY))


def test_a_proxy_before_it_gets_the_token_of_the_file_as_it_is_now(program: Path, tmp_path: Path) -> None:
    certificate, key = certified(tmp_path, "proxy")
    token = tmp_path / "token"
    token.write_text("first\n")
    with serving(program, tmp_path, {}) as port, guarded(port, certificate, key) as (door, accepted):
        accepted.append("first")
        prometheus = Prometheus(f"https://127.0.0.1:{door}", bearer_token_file=token, ca_file=certificate)
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

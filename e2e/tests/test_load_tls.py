"""HTTPS: the certificate is checked against the given authority and the URL's name, and all else is as over HTTP."""

from __future__ import annotations

import asyncio
import ssl
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from e2e.certificates import certified
from e2e.load import Arrival, Bounds, Connections, LoadError, Outcome, Record, Spec, Target, run_load
from e2e.load.drive import Driver, tls
from e2e.load.records import Kind
from e2e.load.spec import plan
from e2e.tests.load_fakes import DEEDS, Server


@dataclass(frozen=True)
class Identity:
    """A certificate that signed itself: its file is the client's authority."""

    certificate: Path
    server: ssl.SSLContext


def identity(folder: Path, address: str) -> Identity:
    certificate, secret = certified(folder, address, address)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, secret)
    return Identity(certificate, server)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Identity:
    return identity(tmp_path_factory.mktemp("ours"), "127.0.0.1")


async def drive(script: list[str], server: Identity, ca: Path | None, kept: bool = False) -> tuple[list[Record], int]:
    """Run a script's requests, 50 ms apart; returns the records and how many connections the server accepted."""
    fake = Server(script, tls=server.server)
    async with fake.serving() as url:
        schedule = tuple(Arrival(0.05 * number, 5, 3) for number in range(len(script)))
        connections = Connections.REUSED if kept else Connections.FRESH
        spec = Spec(Target(url, "m", ca=ca), schedule, Bounds(request=20, silence=2), connections=connections)
        records, _ = await Driver(spec, plan(spec), "127.0.0.1").run(time.monotonic())
    return sorted(records, key=lambda record: record.index), fake.accepted


def test_each_deed_gets_its_class_over_tls_too(ours: Identity) -> None:
    names = [name for name in DEEDS if name != "only comments"]  # which takes the whole bound of a request
    records, _ = asyncio.run(drive(names, ours, ours.certificate))
    expected = {name: (DEEDS[name].outcome, DEEDS[name].kind) for name in names}
    assert dict(zip(names, ((one.outcome, one.kind) for one in records), strict=True)) == expected


def test_connections_are_kept_over_tls_too(ours: Identity) -> None:
    records, accepted = asyncio.run(drive(["good, then open"] * 4, ours, ours.certificate, kept=True))
    assert [one.outcome for one in records] == [Outcome.COMPLETED] * 4
    assert accepted < 4


def test_a_certificate_of_nobody_we_trust(ours: Identity) -> None:
    records, _ = asyncio.run(drive(["good"], ours, None))
    assert [(one.outcome, one.kind) for one in records] == [(Outcome.FAILED, Kind.UNREACHABLE)]
    assert "self-signed" in (records[0].detail or "")


def test_a_certificate_for_another_address(tmp_path: Path) -> None:
    other = identity(tmp_path, "127.0.0.2")
    records, _ = asyncio.run(drive(["good"], other, other.certificate))
    assert [(one.outcome, one.kind) for one in records] == [(Outcome.FAILED, Kind.UNREACHABLE)]
    assert "127.0.0.1" in (records[0].detail or "")


def test_a_server_without_tls(ours: Identity) -> None:
    async def run() -> list[Record]:
        async with Server(["good"]).serving() as url:
            target = Target(url.replace("http:", "https:"), "m", ca=ours.certificate)
            spec = Spec(target, (Arrival(0, 5, 3),), Bounds(request=20, silence=2))
            return (await Driver(spec, plan(spec), "127.0.0.1").run(time.monotonic()))[0]

    assert [one.outcome for one in asyncio.run(run())] in ([Outcome.FAILED], [Outcome.HUNG])


@pytest.mark.parametrize(
    ("url", "ca", "says"),
    [
        ("http://127.0.0.1:1", "ca.pem", "not https"),
        ("https://127.0.0.1:1", "missing.pem", "cannot be used"),
        ("ftp://127.0.0.1:1", None, "must look like"),
        ("https://", None, "must look like"),
    ],
)
def test_targets_that_make_no_sense(url: str, ca: str | None, says: str, tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=says):
        run_load(Spec(Target(url, "m", ca=tmp_path / ca if ca else None), (Arrival(0, 1, 1),), Bounds(1, 1)))


def test_a_file_that_is_no_certificate(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing of the kind")
    with pytest.raises(LoadError, match=r"ca\.pem cannot be used"):
        tls(Target("https://localhost", "m", ca=tmp_path / "ca.pem"))


def test_the_usual_ports() -> None:
    assert [Target(f"{scheme}://host", "m").port for scheme in ("http", "https")] == [80, 443]

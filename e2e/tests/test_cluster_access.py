"""Certificates and kubeconfigs of the local cluster, and the forwarder that leads into it."""

import asyncio
import contextlib
import ipaddress
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from e2e.cluster import kubeconfig
from e2e.cluster.local import forward, pki, volumes
from e2e.cluster.local.layout import Node


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("pki")
    pki.create(made)
    pki.create_node(made, Node(3))
    return made


def _load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


@pytest.mark.parametrize(
    ("file", "authority", "user", "group"),
    [
        ("admin", "ca", "kubernetes-admin", "system:masters"),
        ("controller-manager", "ca", "system:kube-controller-manager", None),
        ("scheduler", "ca", "system:kube-scheduler", None),
        ("node3", "ca", "system:node:node3", "system:nodes"),
        ("node3-serving", "ca", "system:node:node3", "system:nodes"),
        ("front-proxy-client", "front-proxy-ca", "front-proxy-client", None),
    ],
)
def test_certificates_name_user_and_group(
    folder: Path, file: str, authority: str, user: str, group: str | None
) -> None:
    certificate = _load(folder / f"{file}.crt")
    names = {attribute.oid: attribute.value for attribute in certificate.subject}
    assert names[NameOID.COMMON_NAME] == user
    assert names.get(NameOID.ORGANIZATION_NAME) == group
    certificate.verify_directly_issued_by(_load(folder / f"{authority}.crt"))


@pytest.mark.parametrize("address", ["127.0.0.1", "10.77.0.1", "10.96.0.1"])
def test_the_api_server_is_trusted_at_every_address_it_is_called_by(folder: Path, address: str) -> None:
    names = _load(folder / "apiserver.crt").extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert address in map(str, names.get_values_for_type(x509.IPAddress))


def test_the_api_servers_certificate_passes_a_strict_verifier(folder: Path) -> None:
    """Python from 3.13 on verifies strictly: authority and subject must carry key identifiers."""
    policy = PolicyBuilder().store(Store([_load(folder / "ca.crt")]))
    for name in (x509.DNSName("kubernetes.default.svc"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))):
        chain = policy.build_server_verifier(name).verify(_load(folder / "apiserver.crt"), [])
        assert len(chain) == 2
    with pytest.raises(VerificationError):
        policy.build_server_verifier(x509.DNSName("elsewhere.svc")).verify(_load(folder / "apiserver.crt"), [])


def test_keys_are_readable_by_their_owner_only(folder: Path) -> None:
    assert {oct(path.stat().st_mode & 0o777) for path in folder.glob("*.key")} == {"0o600"}


def test_a_kubeconfig_is_complete_in_itself_and_can_be_pointed_elsewhere(folder: Path, tmp_path: Path) -> None:
    inside = kubeconfig.from_files("it", "https://10.77.0.1:6443", folder, "admin")
    outside = kubeconfig.at(inside, "https://127.0.0.1:40123")
    written = kubeconfig.write(tmp_path / "new" / "kubeconfig", outside)
    assert oct(written.stat().st_mode & 0o777) == "0o600"
    read = yaml.safe_load(written.read_text())
    assert read["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:40123"
    assert inside["clusters"][0]["cluster"]["server"] == "https://10.77.0.1:6443"
    authority = inside["clusters"][0]["cluster"]["certificate-authority-data"]
    assert read["clusters"][0]["cluster"]["certificate-authority-data"] == authority
    assert read["users"] == inside["users"]
    assert read["current-context"] == read["contexts"][0]["name"] == "it"


class Echo:
    """A server that sends back in capitals what it got, after its client has ended its half."""

    def __enter__(self) -> int:
        self._server = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, daemon=True).start()
        return int(self._server.getsockname()[1])

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._answer, args=self._server.accept()[:1], daemon=True).start()

    @staticmethod
    def _answer(peer: socket.socket) -> None:
        with peer:
            got = b""
            while data := peer.recv(65536):
                got += data
            peer.sendall(got.upper())


async def _ask(port: int, text: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(text)
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    return answer


def test_the_forwarder_carries_bytes_both_ways_and_ends_of_halves() -> None:
    async def run() -> list[bytes]:
        with Echo() as target:
            server = forward.listen(0)
            serving = asyncio.create_task(forward.serve(server, "127.0.0.1", target))
            port = server.getsockname()[1]
            answers = await asyncio.gather(*(_ask(port, bytes([97 + n]) * 300_000) for n in range(5)))
            serving.cancel()
            return answers

    assert asyncio.run(run()) == [bytes([65 + n]) * 300_000 for n in range(5)]


def test_the_forwarder_closes_when_nobody_listens_behind_it() -> None:
    async def run() -> bytes:
        with socket.create_server(("127.0.0.1", 0)) as closed:
            nowhere = closed.getsockname()[1]
        server = forward.listen(0)
        serving = asyncio.create_task(forward.serve(server, "127.0.0.1", nowhere))
        async with asyncio.timeout(10):
            answer = await _ask(server.getsockname()[1], b"x")
        serving.cancel()
        return answer

    assert asyncio.run(run()) == b""


def test_a_port_that_is_taken_is_replaced_by_a_free_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with forward.listen(port) as other:
            assert other.getsockname()[1] not in (0, port)


@pytest.mark.skipif(os.geteuid() != 0, reason="entering a network namespace needs root")
def test_the_program_listens_here_and_dials_in_another_network(tmp_path: Path) -> None:
    answerer = (
        "import socket; s = socket.create_server(('127.0.0.1', 7)); c = s.accept()[0]; c.sendall(b'inside'); c.close()"
    )
    script = f'ip link set lo up && exec {sys.executable} -c "{answerer}"'
    endpoint = tmp_path / "endpoint.json"
    with subprocess.Popen(["unshare", "--net", "sh", "-c", script]) as inside:
        try:
            _wait(lambda: os.readlink(f"/proc/{inside.pid}/ns/net") != os.readlink("/proc/self/ns/net"))
            command = [sys.executable, "-I", forward.__file__, str(endpoint), str(inside.pid), "127.0.0.1", "7"]
            with subprocess.Popen(command) as program:
                try:
                    _wait(endpoint.exists)
                    told = json.loads(endpoint.read_text())
                    assert told["pid"] == program.pid
                    _wait(lambda: asyncio.run(_ask(told["port"], b"")) == b"inside")
                finally:
                    program.kill()
        finally:
            inside.kill()


def _wait(condition: object) -> None:
    assert callable(condition)
    for _ in range(200):
        if condition():
            return
        time.sleep(0.05)
    pytest.fail("waited in vain")


def test_new_volumes_are_opened_once_and_what_pods_close_later_stays_closed(tmp_path: Path) -> None:
    def mode(name: str) -> int:
        return (tmp_path / name).stat().st_mode & 0o777

    (tmp_path / "one").mkdir(mode=0o750)
    (tmp_path / "file").touch(mode=0o600)
    known = volumes.open_new(str(tmp_path), set())
    assert (mode("one"), mode("file")) == (0o777, 0o600)
    (tmp_path / "one").chmod(0o700)
    (tmp_path / "two").mkdir(mode=0o750)
    known = volumes.open_new(str(tmp_path), known)
    assert known == {"one", "two"}
    assert (mode("one"), mode("two")) == (0o700, 0o777)

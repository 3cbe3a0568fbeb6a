"""Where the API server is: the pod's account, or a kubeconfig."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from steelyard.observe.server import NoServer, TokenFile, of_kubeconfig, of_this_pod


def certificate() -> tuple[bytes, bytes]:
    """A certificate that vouches for itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(now).not_valid_after(now + timedelta(days=1))
    pem = serialization.Encoding.PEM
    plain = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return made.sign(key, hashes.SHA256()).public_bytes(pem), plain


def kubeconfig(folder: Path, cluster: dict[str, Any], user: dict[str, Any]) -> str:
    content = {
        "current-context": "here",
        "contexts": [{"name": "other", "context": {}}, {"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    (folder / "config").write_text(yaml.safe_dump(content))
    return str(folder / "config")


def test_a_kubeconfig_with_certificates_in_it(tmp_path: Path) -> None:
    public, private = certificate()
    in_it = {name: base64.b64encode(data).decode() for name, data in (("ca", public), ("key", private))}
    cluster = {"server": "https://10.0.0.1:6443", "certificate-authority-data": in_it["ca"]}
    user = {"client-certificate-data": in_it["ca"], "client-key-data": in_it["key"]}
    server = of_kubeconfig(kubeconfig(tmp_path, cluster, user))
    assert (server.host, server.port, server.bearer()) == ("10.0.0.1", 6443, "")
    assert server.context is not None
    assert server.context.cert_store_stats()["x509"] == 1


def test_a_kubeconfig_with_files_and_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ca.crt").write_bytes(certificate()[0])
    (tmp_path / "token").write_text("t1\n")
    cluster = {"server": "https://example.test", "certificate-authority": str(tmp_path / "ca.crt")}
    monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path, cluster, {"tokenFile": str(tmp_path / "token")}))
    server = of_kubeconfig()
    assert (server.host, server.port, server.bearer()) == ("example.test", 443, "t1")


@pytest.mark.parametrize(
    ("cluster", "user", "says"),
    [
        ({"server": "https://h"}, {"exec": {"command": "aws"}}, "users.*exec is not understood here"),
        ({"server": "h:6443"}, {}, "server is 'h:6443'; it must be a URL"),
        ({}, {}, "server is None"),
        ({"server": "https://h", "certificate-authority": "/no/such/file"}, {}, "No such file"),
        ({"server": "https://h", "certificate-authority-data": "bm9uZQ=="}, {}, "kubeconfig"),
    ],
)
def test_what_cannot_be_used_is_told_with_the_file(tmp_path: Path, cluster: Any, user: Any, says: str) -> None:
    with pytest.raises(NoServer, match=says) as failure:
        of_kubeconfig(kubeconfig(tmp_path, cluster, user))
    assert str(tmp_path / "config") in str(failure.value)


def test_a_missing_context_is_named(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("current-context: gone\ncontexts: []\n")
    with pytest.raises(NoServer, match="contexts has no entry named 'gone'"):
        of_kubeconfig(str(tmp_path / "config"))


def test_a_pod_uses_its_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    assert of_this_pod(tmp_path) is None, "without a mounted token this is no pod"
    (tmp_path / "ca.crt").write_bytes(certificate()[0])
    (tmp_path / "token").write_text("t1")
    server = of_this_pod(tmp_path)
    assert server is not None
    assert (server.host, server.port, server.bearer()) == ("10.96.0.1", 443, "t1")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    assert of_this_pod(tmp_path) is None


def test_a_token_is_read_anew_after_a_minute(tmp_path: Path) -> None:
    now, file = 0.0, tmp_path / "token"
    file.write_text("old\n")
    token = TokenFile(file, lambda: now)
    assert token() == "old"
    file.write_text("new\n")
    now = 59.0
    assert token() == "old"
    now = 61.0
    assert token() == "new"

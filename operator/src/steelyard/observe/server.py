"""Where the API server is and how this process proves who it is: the pod's service account, or a kubeconfig file.

The `kubernetes` package is left aside for what little is needed of it: its import takes 14 MiB and half a CPU-second, and a call
through it four times the CPU of `wire.py`. Of a kubeconfig, client certificates and tokens are read; programs that fetch
credentials (`exec`) are refused by name, since the operator runs in a pod.
"""

import base64
import os
import ssl
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_SECONDS = 60.0  # the kubelet replaces a mounted token long before its end; it is read anew this often


class NoServer(Exception):
    """It is not known where the API server is, or how to be let in; the message names the file and the remedy."""


@dataclass(frozen=True)
class Server:
    """An API server; `context` is None for plain HTTP, `bearer` gives the token to send, empty for none."""

    host: str
    port: int
    context: ssl.SSLContext | None = None
    bearer: Callable[[], str] = lambda: ""


class TokenFile:
    """A token that somebody else renews in a file."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._until = float("-inf")
        self._token = ""

    def __call__(self) -> str:
        """Give the token as it was within the last minute; raises OSError where the file cannot be read."""
        if self._clock() >= self._until:
            self._token = self._path.read_text().strip()
            self._until = self._clock() + TOKEN_SECONDS
        return self._token


def of_this_pod(account: Path = ACCOUNT) -> Server | None:
    """Find the API server as every pod does; None outside a cluster."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    token = account / "token"
    if not host or not token.exists():
        return None
    return Server(host, int(port), _context(cafile=str(account / "ca.crt")), TokenFile(token))


def of_kubeconfig(path: str | None = None) -> Server:
    """Read the current context of a kubeconfig; without a path, of KUBECONFIG or ~/.kube/config."""
    file = Path(path or os.environ.get("KUBECONFIG", "").split(os.pathsep)[0] or Path.home() / ".kube" / "config")
    try:
        content = yaml.safe_load(file.read_text()) or {}
        context = _named(content, "context", content.get("current-context"))
        cluster = _named(content, "cluster", context.get("cluster"))
        user = _named(content, "user", context.get("user")) if context.get("user") else {}
        return _server(cluster, user)
    except (OSError, yaml.YAMLError, ValueError, ssl.SSLError) as failure:
        raise NoServer(f"kubeconfig {file}: {failure}") from failure


def _server(cluster: Mapping[str, Any], user: Mapping[str, Any]) -> Server:
    for way in ("exec", "auth-provider", "username"):
        if way in user:
            raise ValueError(
                f"users[].user.{way} is not understood here; give the user a client certificate or a token"
            )
    url = urlsplit(str(cluster.get("server")))
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ValueError(f"clusters[].cluster.server is {cluster.get('server')!r}; it must be a URL of http or https")
    bearer = _bearer(user)
    if url.scheme == "http":
        return Server(url.hostname, url.port or 80, None, bearer)
    authority = _content(cluster, "certificate-authority")
    context = _context(cadata=authority.decode() if authority else None)
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate, key = _content(user, "client-certificate"), _content(user, "client-key")
    if certificate and key:
        with tempfile.NamedTemporaryFile(suffix=".pem") as both:  # the ssl module reads certificates from files only
            both.write(certificate + b"\n" + key)
            both.flush()
            context.load_cert_chain(both.name)
    return Server(url.hostname, url.port or 443, context, bearer)


def _bearer(user: Mapping[str, Any]) -> Callable[[], str]:
    if user.get("tokenFile"):
        return TokenFile(Path(user["tokenFile"]))
    token = str(user.get("token") or "")
    return lambda: token


def _context(cafile: str | None = None, cadata: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=cafile, cadata=cadata)
    # Newer Pythons also want extensions that the certificates of many clusters lack.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _named(content: Mapping[str, Any], kind: str, name: object) -> Mapping[str, Any]:
    for entry in content.get(f"{kind}s") or ():
        if entry.get("name") == name:
            return dict(entry.get(kind) or {})
    raise ValueError(f"{kind}s has no entry named {name!r}")


def _content(entry: Mapping[str, Any], name: str) -> bytes | None:
    """Give what `name` holds: a path, or with `-data` the content itself in base64."""
    if f"{name}-data" in entry:
        return base64.b64decode(entry[f"{name}-data"])
    return Path(entry[name]).read_bytes() if name in entry else None

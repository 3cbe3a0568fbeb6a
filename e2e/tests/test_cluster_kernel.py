"""Kernel modules: what is missing is loaded, and what cannot be loaded is told."""

from pathlib import Path

import pytest

from e2e.cluster import ClusterError
from e2e.cluster.local import kernel


@pytest.mark.parametrize(
    ("bridge", "filesystems", "missing"),
    [
        (True, "nodev\tsysfs\n\text4\nnodev\toverlay\n", []),
        (False, "nodev\toverlay\n", ["br_netfilter"]),
        (True, "\text4\nnodev\toverlayish\n", ["overlay"]),
        (False, "", ["br_netfilter", "overlay"]),
    ],
)
def test_missing_modules_are_read_from_proc(tmp_path: Path, bridge: bool, filesystems: str, missing: list[str]) -> None:
    (tmp_path / "filesystems").write_text(filesystems)
    if bridge:
        setting = tmp_path / "sys" / "net" / "bridge" / "bridge-nf-call-iptables"
        setting.parent.mkdir(parents=True)
        setting.write_text("1")
    assert kernel.missing(tmp_path) == missing


def test_modules_are_loaded_once_and_only_when_missing() -> None:
    absent = ["br_netfilter", "overlay"]
    loaded: list[str] = []

    def load(module: str) -> None:
        absent.remove(module)
        loaded.append(module)

    kernel.require(load, lambda: list(absent))
    kernel.require(load, lambda: list(absent))
    assert loaded == ["br_netfilter", "overlay"]


def test_a_module_that_does_not_load_is_told_with_the_remedy() -> None:
    with pytest.raises(ClusterError, match="modprobe br_netfilter"):
        kernel.require(lambda module: None, lambda: ["br_netfilter"])

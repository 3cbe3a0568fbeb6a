"""Cache keys of the cluster's programs, the Go that builds them, and the packages that they need."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e import packages
from e2e.cluster import paths, toolchain
from e2e.cluster.local import settings
from e2e.cluster.programs import COMPONENTS, PROGRAMS, PROMETHEUS, PROMTOOL, Program, build_command, key

PROGRAM = PROGRAMS[0]


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the first program's module, copied so that a test may change it."""
    shutil.copytree(paths.MODULES, tmp_path / "modules")
    monkeypatch.setattr(paths, "MODULES", tmp_path / "modules")
    return PROGRAM.folder


def _append(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        file = folder / name
        file.write_text(file.read_text() + "\n")

    return change


def _add(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).write_text("x")

    return change


@pytest.mark.parametrize(
    ("change", "differs", "because"),
    [
        (_append("go.mod"), True, "another version of a dependency"),
        (_append("go.sum"), True, "another content of a dependency"),
        (_append("allinone/main.go"), True, "another program"),
        (_add("allinone/more.go"), True, "one more source file"),
        (_add("README.md"), False, "the compiler does not read it"),
    ],
)
def test_a_key_follows_what_the_compiler_reads(
    copied: Path, change: Callable[[Path], None], differs: bool, because: str
) -> None:
    before = key(PROGRAM, "1.26")
    change(copied)
    assert (key(PROGRAM, "1.26") != before) is differs, because


@pytest.mark.parametrize(
    "other",
    [
        Program("kubernetes", "kube", "./allinone", 0, ("-X a.b=c",)),
        Program("kubernetes", "kube", "./other", 0, PROGRAM.linker),
        Program("kubernetes", "etcd", "./allinone", 0, PROGRAM.linker),
        Program("kubernetes", "kube", "./allinone", 0, PROGRAM.linker, tags=("some",)),
    ],
)
def test_a_key_follows_package_module_tags_and_linker_flags(other: Program) -> None:
    assert key(other, "1.26") != key(PROGRAM, "1.26")


def test_a_key_follows_go_and_nothing_of_the_display() -> None:
    assert key(PROGRAM, "1.27") != key(PROGRAM, "1.26")
    shown_otherwise = Program(PROGRAM.name, PROGRAM.module, PROGRAM.package, 1, PROGRAM.linker, ())
    assert key(shown_otherwise, "1.26") == key(PROGRAM, "1.26")


def test_every_program_has_its_module_and_no_two_share_a_key() -> None:
    every = (*PROGRAMS, PROMETHEUS, PROMTOOL)
    assert {(program.folder / "go.sum").exists() for program in every} == {True}
    assert len({key(program, "1.26") for program in every}) == len(every)


def test_kubernetes_is_linked_with_its_version_and_called_by_every_component() -> None:
    command = build_command(PROGRAM, Path("/go"), Path("/out"))
    linker = command[command.index("-ldflags") + 1]
    assert "-X k8s.io/component-base/version.gitVersion=v1.37.2" in linker
    assert "-X k8s.io/client-go/pkg/version.gitMinor=37" in linker
    assert PROGRAM.links == COMPONENTS


def test_prometheus_is_compiled_with_kubernetes_discovery_alone() -> None:
    command = build_command(PROMETHEUS, Path("/go"), Path("/out"))
    assert command[command.index("-tags") + 1] == "remove_all_sd,enable_kubernetes_sd"
    assert "-tags" not in build_command(PROGRAM, Path("/go"), Path("/out"))


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("go version go1.26.8 linux/amd64", (1, 26)),
        ("go version go1.30rc1 linux/arm64", (1, 30)),
        ("go version devel +abc", None),
        ("", None),
    ],
)
def test_the_version_of_go_is_read_from_its_own_words(text: str, version: tuple[int, int] | None) -> None:
    assert toolchain.parse_version(text) == version


def test_a_go_that_is_too_old_is_passed_over_for_the_one_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, version in (("old", "1.22.1"), ("cache/go/bin", "1.26.3")):
        program = tmp_path / folder / "go"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\necho go version go{version} linux/amd64\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'old'}:/usr/bin:/bin")
    monkeypatch.setenv("STEELYARD_CACHE", str(tmp_path / "cache"))
    assert toolchain.find() == toolchain.Go(tmp_path / "cache" / "go" / "bin" / "go", "1.26")


def test_missing_packages_are_named_once_each() -> None:
    needed = settings.NEEDED
    assert packages.missing(needed, lambda item: True) == []
    assert packages.missing(needed, lambda item: item not in ("ctr", "containerd", "nft")) == ["containerd", "nftables"]
    assert set(packages.missing(needed, lambda item: False)) == set(needed.values())

"""Building into the cache, with a `go` that only pretends: once per content, errors told, lines shown without a terminal."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from e2e.cluster import ClusterError, build
from e2e.cluster.programs import PROGRAMS, Program

ETCD = next(program for program in PROGRAMS if program.name == "etcd")
BROKEN = Program("broken", "etcd", "./no-such-package", 3)

FAKE_GO = """#!/bin/sh
[ "$1" != version ] || {{ echo go version go1.26.9 linux/amd64; exit; }}
echo "$PWD $GOFLAGS $CGO_ENABLED $*" >>{calls}
case "$*" in *no-such-package*) echo "directory not found" >&2; exit 1 ;; esac
echo "go: downloading example.test/a v1" >&2
echo example.test/a >&2
while [ "$1" != -o ]; do shift; done
echo program >"$2"
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text(FAKE_GO.format(calls=tmp_path / "calls"))
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{go.parent}:/usr/bin:/bin")
    monkeypatch.setenv("STEELYARD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "calls"


def test_a_program_is_built_once_in_its_module_and_reached_by_all_its_names(calls: Path, tmp_path: Path) -> None:
    shown = io.StringIO()
    files = build.ensure(Console(file=shown), PROGRAMS)
    assert {name: file.read_text() for name, file in files.items()} == {p.name: "program\n" for p in PROGRAMS}
    assert "build etcd: started" in shown.getvalue()
    assert "build etcd: done" in shown.getvalue()
    assert any(line.startswith(f"{ETCD.folder} -trimpath 0 build") for line in calls.read_text().splitlines())
    assert build.ensure(Console(file=shown), PROGRAMS) == files
    assert len(calls.read_text().splitlines()) == len(PROGRAMS)

    build.link(files, tmp_path / "names")
    build.link(files, tmp_path / "names")
    assert (tmp_path / "names" / "kubelet").resolve() == files["kubernetes"].resolve()
    assert sorted(path.name for path in (tmp_path / "names").iterdir()) == sorted(
        name for program in PROGRAMS for name in program.links or (program.name,)
    )


def test_a_build_that_fails_is_told_in_the_compilers_words_and_kept_out_of_the_cache(calls: Path) -> None:
    for _ in range(2):
        with pytest.raises(ClusterError, match=r"broken cannot be built in .*\ndirectory not found"):
            build.ensure(Console(file=io.StringIO()), [BROKEN])
    assert len(calls.read_text().splitlines()) == 2

"""`steelyard-quantize` where nobody watches: lines for a log, exit statuses for what started it, and what is there is enough."""

from __future__ import annotations

import resource
import threading
import time
from pathlib import Path

import pytest
import torch

import tiny_model
from steelyard_kernels.quantize import cli, workfolder
from steelyard_kernels.quantize import run as runs
from steelyard_kernels.quantize.workfolder import WorkFolder

OPTIONS = ("--recipe", "fp8", "--samples", "4", "--tokens", "64", "--windows", "2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model.write(tmp_path_factory.mktemp("source") / "tiny")


def test_a_log_gets_a_line_a_layer_and_quiet_says_nothing(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([str(folder), str(tmp_path / "one"), *OPTIONS]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"layer {number} of {tiny_model.LAYERS}" for number in range(tiny_model.LAYERS + 1)]
    assert cli.main([str(folder), str(tmp_path / "two"), *OPTIONS, "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_what_is_there_is_enough_where_that_is_asked_for(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out"
    assert cli.main([str(folder), str(target), *OPTIONS, "--reuse"]) == 0
    before = {path: path.stat().st_mtime_ns for path in target.iterdir()}
    capsys.readouterr()
    assert cli.main([str(folder), str(target), *OPTIONS, "--reuse"]) == 0
    assert "is there already" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in target.iterdir()} == before
    assert cli.main([str(folder), str(target), *OPTIONS]) == 1
    assert "name a new folder" in capsys.readouterr().err


def in_the_background(folder: Path, target: Path) -> tuple[threading.Thread, list[int]]:
    """The command in a thread, and where its exit status will be."""
    statuses: list[int] = []
    given = [str(folder), str(target), *OPTIONS, "--reuse"]
    thread = threading.Thread(target=lambda: statuses.append(cli.main(given)))
    thread.start()
    return thread, statuses


def finish(other: WorkFolder) -> None:
    """The other run makes it."""
    other.begin("the other's")
    other.path.joinpath("config.json").write_text("{}")
    other.finish()


def test_a_run_waits_for_another_one_of_the_same_folder(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out"
    waited = threading.Event()
    monkeypatch.setattr(cli, "_wait", lambda seconds: waited.set() or time.sleep(0.01))
    with WorkFolder(target) as other:
        assert cli.main([str(folder), str(target), *OPTIONS]) == 1
        assert "another run is writing" in capsys.readouterr().err
        mine, statuses = in_the_background(folder, target)
        assert waited.wait(60)
        finish(other)
    mine.join(60)
    assert statuses == [0]
    assert [path.name for path in target.iterdir()] == ["config.json"], "what the other one made is left as it is"
    assert list(tmp_path.iterdir()) == [target], "no folder of mine is left beside it"


@pytest.mark.parametrize("made", [True, False], ids=["makes it", "gives up"])
@pytest.mark.parametrize("place", [(runs, "open_source"), (workfolder.fcntl, "flock")], ids=["reads", "locks"])
def test_another_run_may_end_while_this_one(
    place: tuple[object, str], made: bool, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has made is taken; where it gave up, this one makes it. The lock must not be that of a folder that is gone."""
    target = tmp_path / "out"
    other = WorkFolder(target).__enter__()
    owner, name = place
    step = getattr(owner, name)
    ends = [finish if made else WorkFolder.remove, WorkFolder.__exit__]

    def meanwhile(*arguments: object) -> object:
        while ends:
            ends.pop(0)(other)
        return step(*arguments)

    monkeypatch.setattr(owner, name, meanwhile)
    assert cli.main([str(folder), str(target), *OPTIONS, "--reuse"]) == 0
    assert not ends
    assert ({path.name for path in target.iterdir()} == {"config.json"}) is made
    assert list(tmp_path.iterdir()) == [target]


def test_what_cannot_be_used_leaves_no_folders_and_an_earlier_runs_layers(folder: Path, tmp_path: Path) -> None:
    too_long = ("--recipe", "fp8", "--samples", "4", "--tokens", "10000000")
    assert cli.main([str(folder), str(tmp_path / "a" / "b" / "out"), *too_long]) == 1
    assert list(tmp_path.iterdir()) == []
    earlier = tmp_path / ".out.unfinished"
    earlier.mkdir()
    (earlier / "model-00001-of-00004.safetensors").write_bytes(b"")
    assert cli.main([str(folder), str(tmp_path / "out"), *too_long]) == 1
    assert [path.name for path in earlier.iterdir()] == ["model-00001-of-00004.safetensors"]


@pytest.mark.parametrize("what", ["tensors", "state"])
def test_a_disk_that_is_full_in_the_middle_is_told_as_one(what: str, tmp_path: Path) -> None:
    many = {"a": torch.zeros(4096)}
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with WorkFolder(tmp_path / "out") as work:
        work.begin("same")
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
        try:
            with pytest.raises(OSError, match=r"cannot be written: .*File too large"):
                work.add_layer("a.safetensors", many if what == "tensors" else {}, many, {})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert work.done == 0


def test_a_failing_disk_may_be_tried_again_and_an_unusable_model_not(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli.main([str(tmp_path), str(tmp_path / "out"), *OPTIONS]) == 1

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(runs, "_one_layer", full)
    assert cli.main([str(folder), str(tmp_path / "out"), *OPTIONS]) == cli.TEMPORARY

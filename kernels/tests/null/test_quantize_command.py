"""`steelyard-quantize` where nobody watches: lines for a log, exit statuses for what started it, and what is there is enough."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import tiny_model
from steelyard_kernels.quantize import cli
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


def test_a_run_waits_for_another_one_of_the_same_folder(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one makes it in the end, or gives up, and then this one does."""
    target = tmp_path / "out"
    waited = threading.Event()
    monkeypatch.setattr(cli.time, "sleep", lambda seconds: waited.set())
    with WorkFolder(target, "the other's") as other:
        assert cli.main([str(folder), str(target), *OPTIONS]) == 1
        assert "another run is writing" in capsys.readouterr().err
        mine = threading.Thread(target=cli.main, args=([str(folder), str(target), *OPTIONS, "--reuse"],))
        mine.start()
        assert waited.wait(60)
        other.path.joinpath("config.json").write_text("{}")
        other.finish()
    mine.join(60)
    assert not mine.is_alive()
    assert [path.name for path in target.iterdir()] == ["config.json"], "what the other one made is left as it is"


def test_a_failing_disk_may_be_tried_again_and_an_unusable_model_not(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli.main([str(tmp_path), str(tmp_path / "out"), *OPTIONS]) == 1

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(runs, "_one_layer", full)
    assert cli.main([str(folder), str(tmp_path / "out"), *OPTIONS]) == cli.TEMPORARY

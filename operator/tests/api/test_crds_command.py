"""`steelyard crds` and `steelyard version`, run as a user runs them."""

from pathlib import Path

import pytest
import yaml
from steelyard.cli.main import app
from typer.testing import CliRunner


def run(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.stdout, done.stderr


def test_prints_a_stream_that_kubectl_takes() -> None:
    code, out, _ = run("crds")
    assert code == 0
    assert [document["kind"] for document in yaml.safe_load_all(out)] == ["CustomResourceDefinition"] * 2


def test_writes_once_and_then_has_nothing_to_do(tmp_path: Path) -> None:
    arguments = ("crds", "--out", str(tmp_path / "crds"), "--docs", str(tmp_path / "docs"))
    code, _, err = run(*arguments)
    assert (code, err.count("wrote ")) == (0, 5)
    assert run(*arguments) == (0, "", "")
    assert run(*arguments, "--check") == (0, "", "")


@pytest.mark.parametrize("spoil", ["edited", "missing"])
def test_check_fails_with_a_diff_and_changes_nothing(tmp_path: Path, spoil: str) -> None:
    run("crds", "--out", str(tmp_path))
    file = next(tmp_path.glob("*_accelerators.yaml"))
    text = file.read_text()
    if spoil == "edited":
        file.write_text(text.replace("Who makes it", "Who sells it"))
    else:
        file.unlink()
    code, out, err = run("crds", "--out", str(tmp_path), "--check")
    assert code == 1
    assert "Who makes it" in out
    assert "make generate" in err
    assert file.exists() == (spoil == "edited")


def test_check_without_a_target_is_wrong_usage() -> None:
    code, _, err = run("crds", "--check")
    assert code == 2
    assert "--out" in err


def test_version_is_the_distributions() -> None:
    code, out, _ = run("version")
    assert (code, out.strip().count(".")) == (0, 2)

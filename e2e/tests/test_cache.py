"""The content-keyed cache: equal content gives equal keys, an entry is whole or absent."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e import cache


@pytest.fixture(autouse=True)
def own_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEELYARD_CACHE", str(tmp_path / "cache"))


def test_a_key_follows_content_and_names_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "a.py").write_text("1")
    first = cache.content_key(["v1", folder])
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "a.pyc").write_text("compiled")
    assert cache.content_key(["v1", folder]) == first, "bytecode is no content"
    (folder / "a.py").rename(folder / "b.py")
    renamed = cache.content_key(["v1", folder])
    (folder / "b.py").write_text("2")
    assert len({first, renamed, cache.content_key(["v1", folder]), cache.content_key(["v2", folder])}) == 4


def test_parts_do_not_run_into_each_other() -> None:
    assert cache.content_key(["ab", "c"]) != cache.content_key(["a", "bc"])


def test_an_entry_is_built_once() -> None:
    built = []

    def build(folder: Path) -> None:
        built.append(folder)
        (folder / "file").write_text("content")

    first = cache.cached("kind", "key", build)
    assert cache.cached("kind", "key", build) == first
    assert len(built) == 1
    assert (first / "file").read_text() == "content"


def test_a_build_that_fails_leaves_no_entry() -> None:
    def broken(folder: Path) -> None:
        (folder / "half").write_text("")
        raise RuntimeError("disk full")

    with pytest.raises(RuntimeError):
        cache.cached("kind", "key", broken)

    def build(folder: Path) -> None:
        assert not list(folder.iterdir()), "the rubbish of the failed build is gone"
        (folder / "whole").write_text("")

    assert [p.name for p in cache.cached("kind", "key", build).iterdir()] == ["whole"]

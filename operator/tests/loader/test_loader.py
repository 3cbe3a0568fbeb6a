"""The loader against a hub on loopback: once, resumed, checked, and told what is wrong."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPResponse
from pathlib import Path

import pytest
from loader_world import BIG, FILES, KEY, NEEDED, REPOSITORY, repositories, store
from steelyard.loader import transfer
from steelyard.loader.errors import LoaderError, Refused
from steelyard.loader.hub import File, Hub, Listing
from steelyard.loader.main import main
from steelyard.loader.store import Store

from e2e.hub import Repositories, serving


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repositories:
    return repositories(tmp_path, monkeypatch)


def there(at: Store) -> dict[str, bytes]:
    return {p.relative_to(at.folder).as_posix(): p.read_bytes() for p in at.folder.rglob("*") if p.is_file()}


def test_what_an_engine_needs_is_brought_once(served: Repositories, tmp_path: Path) -> None:
    at = store(tmp_path)
    with serving(served) as url:
        assert at.fill(Hub(url), REPOSITORY, "main", ()) == len(NEEDED)
        assert there(at) == {name: FILES[name] for name in NEEDED}
        assert at.fill(Hub(url), REPOSITORY, "main", ()) == 0
    assert sorted(served.asked) == sorted(f"{Path(name).name}@0" for name in NEEDED), "each file was asked for once"


def test_named_files_alone_are_brought(served: Repositories, tmp_path: Path) -> None:
    at = store(tmp_path)
    with serving(served) as url:
        at.fill(Hub(url), REPOSITORY, "main", ("*.bin", "config.json"))
        assert set(there(at)) == {"config.json", "pytorch_model.bin"}
        with pytest.raises(Refused, match=r"none of the repository's 6 files matches.*\*\.gguf"):
            at.fill(Hub(url), REPOSITORY, "main", ("*.gguf",))


def test_a_connection_that_breaks_is_resumed_where_it_broke(served: Repositories, tmp_path: Path) -> None:
    served.cut = 300_000
    at = store(tmp_path)
    with serving(served) as url:
        at.fill(Hub(url), REPOSITORY, "main", ("model.safetensors",))
    assert there(at)["model.safetensors"] == BIG
    assert served.asked == [f"model.safetensors@{start}" for start in (0, 300_000, 600_000, 900_000)]


def test_a_hub_without_ranges_is_asked_for_the_whole_again(served: Repositories, tmp_path: Path) -> None:
    at = store(tmp_path)
    part = at.parts / "model.safetensors"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"half of another file")
    served.ignores_ranges = True
    with serving(served) as url:
        at.fill(Hub(url), REPOSITORY, "main", ("model.safetensors",))
    assert there(at)["model.safetensors"] == BIG


def test_a_loader_that_was_killed_is_carried_on_by_the_next(served: Repositories, tmp_path: Path) -> None:
    at = store(tmp_path)
    at.parts.mkdir(parents=True)
    (at.parts / "model.safetensors").write_bytes(BIG[:700_000])
    with serving(served) as url:
        at.fill(Hub(url), REPOSITORY, "main", ("model.safetensors",))
    assert served.asked == ["model.safetensors@700000"]
    assert there(at)["model.safetensors"] == BIG


def test_it_gives_up_when_nothing_comes_and_keeps_what_came(served: Repositories, tmp_path: Path) -> None:
    at = store(tmp_path)
    with serving(served) as url:
        listing = Hub(url).listing(REPOSITORY, "main")
    [file] = [file for file in listing.files if file.path == "model.safetensors"]
    at.parts.mkdir(parents=True)
    (at.parts / file.path).write_bytes(BIG[:1000])
    with pytest.raises(LoaderError, match="does not answer"):
        transfer.fetch(Hub(url), REPOSITORY, listing.commit, file, at.parts / file.path, lambda n: None)
    assert (at.parts / file.path).read_bytes() == BIG[:1000]


@pytest.mark.parametrize("damaged", [1, 99])
def test_bytes_with_a_wrong_digest_are_never_put_in_place(damaged: int, served: Repositories, tmp_path: Path) -> None:
    at, served.damaged = store(tmp_path), damaged
    with serving(served) as url:
        if damaged == 1:
            at.fill(Hub(url), REPOSITORY, "main", ("model.safetensors",))
            assert there(at)["model.safetensors"] == BIG
            return
        with pytest.raises(LoaderError, match="other bytes came than its digest says"):
            at.fill(Hub(url), REPOSITORY, "main", ("model.safetensors",))
    assert not (at.folder / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("name", "begun", "surplus"),
    [
        ("config.json", 0, b"!"),  # one byte more
        ("config.json", 5, b"!"),  # the same, when it was resumed
        ("config.json", 0, BIG * 3),  # some pieces more
        ("empty.txt", 0, b"!"),
    ],
)
def test_an_answer_that_is_longer_than_listed_is_cut_off_and_given_up_on(
    name: str, begun: int, surplus: bytes, served: Repositories, tmp_path: Path
) -> None:
    size, came, pauses = len(FILES[name]), list[int](), list[float]()
    part = tmp_path / "part"
    if begun:
        part.write_bytes(FILES[name][:begun])
    served.surplus = surplus
    with serving(served) as url:
        listing = Hub(url).listing(REPOSITORY, "main")
        [file] = [file for file in listing.files if file.path == name]
        with pytest.raises(LoaderError, match=rf"2 times more bytes came than the {size} that the hub lists"):
            transfer.fetch(Hub(url), REPOSITORY, listing.commit, file, part, came.append, pauses.append)
    assert served.asked == [f"{name}@{begun}", f"{name}@0"]
    assert sum(came) <= 2 * size, "no byte beyond the size is written"
    assert len(pauses) == 1, "it is not asked for again at once"
    assert not part.exists()


@pytest.mark.parametrize("how", ["bytes changed", "cut", "removed", "only touched"])
def test_a_file_that_is_not_as_it_was_is_looked_at_and_brought_again(
    how: str, served: Repositories, tmp_path: Path
) -> None:
    at = store(tmp_path)
    with serving(served) as url:
        at.fill(Hub(url), REPOSITORY, "main", ())
        path = at.folder / "model.safetensors"
        served.asked.clear()
        if how == "bytes changed":
            path.write_bytes(BIG[:-1] + b"!")
        elif how == "cut":
            path.write_bytes(BIG[:100])
        elif how == "removed":
            path.unlink()
        else:
            os.utime(path, (1, 1))
        assert at.fill(Hub(url), REPOSITORY, "main", ()) == (how != "only touched")
    assert served.asked == ([] if how == "only touched" else ["model.safetensors@0"])
    assert there(at)["model.safetensors"] == BIG


def test_a_branch_that_moved_brings_what_changed_and_drops_what_went(served: Repositories, tmp_path: Path) -> None:
    at = store(tmp_path)
    with serving(served) as url:
        at.fill(Hub(url), REPOSITORY, "main", ())
        with (at.folder / "config.json").open("rb") as open_elsewhere:
            (served.folder / REPOSITORY / "config.json").write_bytes(b"{}")
            (served.folder / REPOSITORY / "empty.txt").unlink()
            assert at.fill(Hub(url), REPOSITORY, "main", ()) == 1
            assert open_elsewhere.read() == FILES["config.json"], "an engine that has it open reads on"
    assert set(there(at)) == NEEDED - {"empty.txt"}
    assert there(at)["config.json"] == b"{}"


CHANGED = {"config.json": b"{}", "model.safetensors": BIG[::-1], "tokenizer/vocab.txt": b"c\n"}


@pytest.fixture
def moved(served: Repositories, tmp_path: Path) -> Repositories:
    """`main` is in the cache; since then three files changed that belong together."""
    with serving(served) as url:
        store(tmp_path).fill(Hub(url), REPOSITORY, "main", ())
    for name, content in CHANGED.items():
        (served.folder / REPOSITORY / name).write_bytes(content)
    served.asked.clear()
    return served


FORMER = {name: FILES[name] for name in NEEDED}
LATER = FORMER | CHANGED


def test_a_fetch_that_fails_midway_leaves_the_former_revision_whole(moved: Repositories, tmp_path: Path) -> None:
    class Half(Hub):
        def content(self, repository: str, commit: str, file: File, start: int) -> HTTPResponse:
            if file.path == "model.safetensors":
                raise Refused("model.safetensors: the hub knows no such repository, revision or file")
            return super().content(repository, commit, file, start)

    at = store(tmp_path)
    with serving(moved) as url:
        with pytest.raises(Refused):
            at.fill(Half(url), REPOSITORY, "main", ())
        assert there(at) == FORMER
        moved.down = True
        assert at.fill(Hub(url), REPOSITORY, "main", ()) == 0, "it is as it was recorded"
        moved.down = False
        at.fill(Hub(url), REPOSITORY, "main", ())
    assert there(at) == LATER
    assert sorted(moved.asked) == ["config.json@0", "model.safetensors@0", "vocab.txt@0"], "what had come was kept"


class Died(BaseException):
    """A loader ends where it stands."""


@contextmanager
def dying_at(step: int) -> Iterator[None]:
    """Let the renaming of that number (from 0) not happen, nor anything after it."""
    done, rename = list[Path](), Path.replace

    def replace(path: Path, target: Path) -> Path:
        if len(done) == step:
            raise Died
        done.append(path)
        return rename(path, target)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Path, "replace", replace)
        with pytest.raises(Died):
            yield


# Renamings of a fill: the plan's, the three files', the record's.
@pytest.mark.parametrize("step", range(5))
def test_a_loader_that_dies_between_renamings_leaves_no_mixture(step: int, moved: Repositories, tmp_path: Path) -> None:
    at = store(tmp_path)
    with serving(moved) as url:
        with dying_at(step):
            at.fill(Hub(url), REPOSITORY, "main", ())
        moved.down = True
        assert at.fill(Hub(url), REPOSITORY, "main", ()) == 0, "no hub is needed to end it"
        assert there(at) == (FORMER if step == 0 else LATER)
        moved.down = False
        at.fill(Hub(url), REPOSITORY, "main", ())
    assert there(at) == LATER
    assert len(moved.asked) == len(CHANGED), "each was fetched once"
    assert {path.name for path in at.cache.iterdir()} == {KEY, f"{KEY}.json", f"{KEY}.lock"}


def test_what_was_damaged_while_no_loader_ran_is_not_taken_for_checked(moved: Repositories, tmp_path: Path) -> None:
    at = store(tmp_path)
    with serving(moved) as url:
        with dying_at(2):  # config.json is in place, the others are parts
            at.fill(Hub(url), REPOSITORY, "main", ())
        assert there(at) == FORMER | {"config.json": CHANGED["config.json"]}
        (at.folder / "config.json").write_bytes(b"[]")
        moved.down = True
        with pytest.raises(LoaderError, match="the hub says 503"):
            at.fill(Hub(url), REPOSITORY, "main", ())
        moved.down = False
        assert at.fill(Hub(url), REPOSITORY, "main", ()) == 1
    assert there(at) == LATER


def test_a_file_may_become_a_folder_and_a_folder_a_file(served: Repositories, tmp_path: Path) -> None:
    at, root = store(tmp_path), served.folder / REPOSITORY
    with serving(served) as url:
        at.fill(Hub(url), REPOSITORY, "main", ())
        (root / "tokenizer/vocab.txt").unlink()
        (root / "tokenizer").rmdir()
        (root / "tokenizer").write_bytes(b"one")
        (root / "config.json").unlink()
        (root / "config.json").mkdir()
        (root / "config.json/all.json").write_bytes(b"two")
        at.fill(Hub(url), REPOSITORY, "main", ())
    assert there(at).items() >= {"tokenizer": b"one", "config.json/all.json": b"two"}.items()
    assert set(there(at)) == {"tokenizer", "config.json/all.json", "model.safetensors", "empty.txt"}


def test_a_hub_that_is_down_is_no_obstacle_to_a_full_cache(served: Repositories, tmp_path: Path) -> None:
    at = store(tmp_path)
    with serving(served) as url:
        at.fill(Hub(url), REPOSITORY, "main", ())
        served.down = True
        assert at.fill(Hub(url), REPOSITORY, "main", ()) == 0
        (at.folder / "config.json").write_bytes(b"changed")
        with pytest.raises(LoaderError, match="the hub says 503"):
            at.fill(Hub(url), REPOSITORY, "main", ())


def test_a_folder_of_a_node_is_made_for_one_user(served: Repositories, tmp_path: Path) -> None:
    at = Store(tmp_path / "team-a", KEY)
    with serving(served) as url:
        at.fill(Hub(url), REPOSITORY, "main", ("config.json",))
    assert at.cache.stat().st_mode & 0o027 == 0, "nothing for others, and no writing for the group"


@pytest.mark.parametrize("what", ["mkdir", "open"])
def test_a_folder_that_may_not_be_written_is_told_with_a_remedy(
    what: str, served: Repositories, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: Path, *words: object, **more: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))  # root, as in builds, is never denied

    monkeypatch.setattr(Path, what, denied)
    with pytest.raises(LoaderError, match=rf"user {os.geteuid()} may not write in the cache.*nodeCache"):
        Store(tmp_path, KEY).fill(Hub("http://127.0.0.1:9"), REPOSITORY, "main", ())


def test_no_room_is_told_with_figures(served: Repositories, tmp_path: Path) -> None:
    class Vast(Hub):
        def listing(self, repository: str, revision: str) -> Listing:
            return Listing("c", (File("model.safetensors", 10**18, "sha256:0"),))

    with pytest.raises(LoaderError, match=r"1000000000\.0 GB are to be fetched and the cache has [0-9.]+ GB left"):
        store(tmp_path).fill(Vast("http://127.0.0.1:9"), REPOSITORY, "main", ())


def test_two_pods_at_once_fill_it_once(served: Repositories, tmp_path: Path) -> None:
    served.cut = 400_000  # so that it takes several answers
    cache = tmp_path / "cache"
    with serving(served) as url:
        command = [sys.executable, "-m", "steelyard.loader.main", "--repository", REPOSITORY, "--cache", str(cache)]
        command += ["--key", KEY]
        env = {**os.environ, "HF_ENDPOINT": url}
        both = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) for _ in range(2)]
        said = [one.communicate(timeout=120)[1] for one in both]
    assert [one.returncode for one in both] == [0, 0], said
    starts = [asked for asked in served.asked if asked.endswith("@0")]
    assert sorted(starts) == sorted(f"{Path(name).name}@0" for name in NEEDED)
    lines = [json.loads(line)["message"] for text in said for line in text.splitlines()]
    assert sum("4 fetched" in line for line in lines) == 1
    assert sum("0 fetched" in line for line in lines) == 1


def test_failures_are_told_in_one_line_and_by_the_exit(
    served: Repositories, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret-token")
    with serving(served) as url:
        monkeypatch.setenv("HF_ENDPOINT", url)
        words = ["--cache", str(tmp_path), "--key", KEY]
        assert main(["--repository", REPOSITORY, *words]) == 0
        assert main(["--repository", "org/none", *words]) == 1
    said = capsys.readouterr().err
    assert "no such repository" in json.loads(said.splitlines()[-1])["message"]
    assert "secret-token" not in said


def test_nothing_is_fetched_where_what_it_is_for_is_made(
    served: Repositories, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at, made = store(tmp_path), tmp_path / "made"
    words = [f"--repository={REPOSITORY}", f"--cache={at.cache}", f"--key={KEY}", f"--unless={made}"]
    made.mkdir()
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    assert main(words) == 0, "nobody asks the hub"
    assert not at.folder.exists()
    assert at.cache.is_dir(), "on a node the kubelet would make it for the Job's mount, as root"
    made.rmdir()
    with serving(served) as url:
        monkeypatch.setenv("HF_ENDPOINT", url)
        assert main(words) == 0
    assert there(at).keys() == NEEDED

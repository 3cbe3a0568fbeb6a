"""Image archives: what is written can be read, by us and by the rules of the format."""

import hashlib
import json
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from e2e.cluster import ClusterError
from e2e.cluster.archive import Image, images, write_archive
from e2e.cluster.local.images import _present


def _layers(folder: Path, contents: list[bytes]) -> list[Path]:
    made = []
    for number, content in enumerate(contents):
        made.append(folder / f"layer{number}.tar")
        made[-1].write_bytes(content)
    return made


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(contents=st.lists(st.binary(max_size=2000), min_size=1, max_size=4))
def test_an_archive_names_every_layer_by_its_own_content(tmp_path: Path, contents: list[bytes]) -> None:
    out = tmp_path / "image.tar"
    digest = write_archive(out, "steelyard/x:1", {"Cmd": ["/x"]}, _layers(tmp_path, contents))
    with tarfile.open(out) as archive:
        read = {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]
    (entry,) = json.loads(read["manifest.json"])
    config = json.loads(read[entry["Config"]])
    assert entry["RepoTags"] == ["steelyard/x:1"]
    assert hashlib.sha256(read[entry["Config"]]).hexdigest() == digest
    assert [read[layer] for layer in entry["Layers"]] == contents
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(c).hexdigest()}" for c in contents]
    assert len(config["history"]) == len(contents)
    assert images(out) == [Image(("steelyard/x:1",), digest)]


def test_equal_input_gives_equal_bytes(tmp_path: Path) -> None:
    layers = _layers(tmp_path, [b"one", b"two"])
    written = []
    for name in ("a.tar", "b.tar"):
        write_archive(tmp_path / name, "steelyard/x:1", {"User": "1"}, layers)
        written.append((tmp_path / name).read_bytes())
    assert written[0] == written[1]


@pytest.mark.parametrize("content", [b"", b"no tar at all", b"\0" * 10240])
def test_what_is_no_archive_is_refused_with_a_remedy(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "x.tar"
    file.write_bytes(content)
    with pytest.raises(ClusterError, match="docker save"):
        images(file)


D1, D2 = "a" * 64, "b" * 64
LISTING = f"""\
REF                        TYPE        DIGEST       SIZE    PLATFORMS   LABELS
registry.host/steelyard/x:1 manifest   sha256:m1    1.0 KiB linux/amd64 -
sha256:{D1}                manifest    sha256:m1    1.0 KiB linux/amd64 -
registry.host/steelyard/y:1 manifest   sha256:m3    1.0 KiB linux/amd64 -
sha256:{D2}                manifest    sha256:m2    1.0 KiB linux/amd64 -
"""


@pytest.mark.parametrize(
    ("image", "present", "because"),
    [
        (Image(("steelyard/x:1",), D1), True, "name and content are there"),
        (Image(("steelyard/x:2",), D1), False, "the name is not"),
        (Image(("yard/x:1",), D1), False, "it is another name's end"),
        (Image(("steelyard/x:1",), "c" * 64), False, "the content is not"),
        (Image(("steelyard/y:1",), D2), False, "the name stands for other content"),
        (Image(("steelyard/x:1", "steelyard/y:1"), D1), False, "one of the names stands for other content"),
    ],
)
def test_an_image_is_present_under_all_its_names_with_its_content(image: Image, present: bool, because: str) -> None:
    assert _present(LISTING, image) is present, because

"""Images on local nodes: the pause image, archives unpacked once for all nodes, and loading into running nodes."""

import os
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

from e2e.cache import cached, content_key
from e2e.cluster import archive
from e2e.cluster.errors import ClusterError
from e2e.cluster.local import machine, settings
from e2e.cluster.local.layout import Layout
from e2e.cluster.local.machine import Machine

KIND = "containerd"
KEPT_TEMPLATES = 3
SOURCE = Path(__file__).with_name("pause.c")
CTR = ("ctr", "--address", settings.SOCKET, "--namespace", "k8s.io", "images")


def pause() -> Path:
    """Return the folder with the compiled `pause` program and `image.tar`, the archive of the pods' sandbox image."""
    return cached("pause", content_key([SOURCE, settings.PAUSE_IMAGE]), _make_pause)


def _make_pause(folder: Path) -> None:
    program, layer = folder / "pause", folder / "layer.tar"
    command = ["gcc", "-Os", "-static", "-s", "-o", str(program), str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterError(f"{SOURCE} cannot be compiled: {done.stderr.strip()}")
    with tarfile.open(layer, "w") as tar:
        member = tarfile.TarInfo("pause")
        member.size, member.mode = program.stat().st_size, 0o755
        with program.open("rb") as content:
            tar.addfile(member, content)
    config = {"Entrypoint": ["/pause"], "User": "65535:65535"}
    archive.write_archive(folder / "image.tar", settings.PAUSE_IMAGE, config, [layer])
    layer.unlink()


def start_runtime(it: Machine, networks: Path) -> None:
    """Start containerd in a machine that has its own /var/lib/containerd, and wait until it answers."""
    config = it.folder / "containerd.toml"
    config.write_text(settings.containerd(networks))
    it.start("containerd", ["containerd", "--config", config])
    ready = ("ctr", "--address", settings.SOCKET, "version")
    machine.wait_until(lambda: it.succeeds(*ready), f"containerd on {it.name} to answer", 30, it.log("containerd"))


def load(it: Machine, archives: Sequence[Path]) -> None:
    """Import `archives` into the running machine; images that it already has are left as they are."""
    have = it.run(*CTR, "ls")
    for file in archives:
        if not all(_present(have, image) for image in archive.images(file)):
            with file.open("rb") as content:
                it.run(*CTR, "import", "-", stdin=content)


def _present(listing: str, image: archive.Image) -> bool:
    """Whether the output of `ctr images ls` shows every reference of `image` with its content.

    The runtime stores an image under its full name and under its configuration's digest; both rows then have one target.
    """
    targets = {columns[0]: columns[2] for line in listing.splitlines() if len(columns := line.split()) > 2}
    content = targets.get(f"sha256:{image.digest}")
    found = [[t for name, t in targets.items() if f"/{name}".endswith(f"/{ref}")] for ref in image.references]
    return content is not None and all(content in matches for matches in found)


def template(layout: Layout, archives: Sequence[Path]) -> Path:
    """Return a containerd root folder that holds the pause image and `archives`, unpacked once and kept in the cache."""
    wanted = [pause() / "image.tar", *archives]
    content = sorted(f"{image.digest} {image.references}" for file in wanted for image in archive.images(file))
    folder = cached(KIND, content_key(content), lambda new: _unpack(layout, wanted, new))
    os.utime(folder)
    _prune(folder.parent)
    return folder


def _unpack(layout: Layout, archives: Sequence[Path], root: Path) -> None:
    it = machine.create(layout, "unpack", pause() / "pause")
    networks = it.folder / "networks"
    for folder in (networks, Path("/var/lib/containerd")):
        folder.mkdir(parents=True, exist_ok=True)
    it.run("mount", "--bind", root, "/var/lib/containerd")
    start_runtime(it, networks)
    load(it, archives)
    it.stop("containerd")
    machine.discard(layout, it.name)


def _prune(kept: Path) -> None:
    """Keep the templates used last; nodes made from a removed one hold their own links to its files."""
    templates = [folder for folder in kept.iterdir() if folder.is_dir() and not folder.name.startswith(".")]
    for folder in sorted(templates, key=lambda f: f.stat().st_mtime)[:-KEPT_TEMPLATES]:
        shutil.rmtree(folder, ignore_errors=True)


def copy_template(it: Machine, folder: Path) -> None:
    """Give the machine `it` its own copy of the template `folder` as hard links, before it is mounted.

    Blobs and committed snapshots are never written again, so links are safe; the databases are written, so they are copied.
    The machine itself copies, so that nothing goes on copying when it is killed.
    """
    to = it.folder / "containerd"
    it.run("cp", "-al", folder, to)
    for database in folder.rglob("*.db"):
        it.run("cp", "-a", "--remove-destination", database, to / database.relative_to(folder))

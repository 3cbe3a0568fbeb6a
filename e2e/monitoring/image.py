"""The image `steelyard/prometheus`: one static program and nothing else, written without a registry or a builder."""

import tarfile
from pathlib import Path

from rich.console import Console

from e2e.cache import cached
from e2e.cluster import build, toolchain
from e2e.cluster.archive import write_archive
from e2e.cluster.programs import PROMETHEUS, key

USER = 65534
CONFIG = {"Entrypoint": ["/prometheus"], "User": f"{USER}:{USER}", "WorkingDir": "/"}


def reference() -> str:
    """The image's name; its tag is the key of the program in it."""
    return f"steelyard/prometheus:{key(PROMETHEUS, toolchain.find().version)[:12]}"


def archive(console: Console) -> Path:
    """The image as an archive in docker's format; the program is built when the cache lacks it (about 6 CPU-minutes)."""
    name = reference()

    def write(folder: Path) -> None:
        program = build.ensure(console, [PROMETHEUS])[PROMETHEUS.name]
        layer = folder / "layer.tar"
        with tarfile.open(layer, "w") as out:
            member = tarfile.TarInfo("prometheus")
            member.size, member.mode = program.stat().st_size, 0o755
            with program.open("rb") as content:
                out.addfile(member, content)
        write_archive(folder / "image.tar", name, CONFIG, [layer])
        layer.unlink()

    return cached("images", name.removeprefix("steelyard/").replace(":", "-"), write) / "image.tar"

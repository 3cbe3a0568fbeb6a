"""Turns contexts into image archives, with docker where a daemon answers, else with buildah."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from e2e import packages
from e2e.cache import REPOSITORY, cache_root, cached, locked
from e2e.errors import ToolError
from e2e.images import context
from e2e.images.components import COMPONENTS, USUAL, Component, tag

BUILDAH: packages.Needed = {"buildah": "buildah", "mmdebstrap": "mmdebstrap", "runc": "runc"}

Say = Callable[[str], None]


class ImageError(ToolError):
    """An image could not be built; the message ends with what the builder printed last."""


def choose_builder() -> str:
    """`docker` when its daemon answers, else `buildah`."""
    answers = (
        shutil.which("docker") and subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0
    )
    return "docker" if answers else "buildah"


def build_archives(names: Iterable[str] = USUAL, builder: str | None = None, say: Say = print) -> dict[str, Path]:
    """Build what is missing, two at a time; returns image reference → docker-archive, in the order of `names`."""
    builder = builder or choose_builder()
    base = context.base_key() if builder == "buildah" else "debian:bookworm-slim"
    wanted = [COMPONENTS[name] for name in names]
    references = {component.name: tag(component, base) for component in wanted}

    def one(component: Component) -> Path:
        return _archive(component, references[component.name], builder, say)

    if builder == "buildah":
        packages.install(BUILDAH, "Building images without Docker", say)
    if builder == "buildah" and any(not _is_built(references[c.name]) for c in wanted):
        _ensure_base(say)
    with ThreadPoolExecutor(2) as pool:
        archives = list(pool.map(one, wanted))
    return dict(zip(references.values(), archives, strict=True))


def _slug(reference: str) -> str:
    return reference.removeprefix("steelyard/").replace(":", "-")


def _is_built(reference: str) -> bool:
    return (cache_root() / "images" / _slug(reference)).is_dir()


def _archive(component: Component, reference: str, builder: str, say: Say) -> Path:
    def build(folder: Path) -> None:
        say(f"image {reference}: building with {builder}")
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            context.fill(component, Path(scratch))
            (_docker if builder == "docker" else _buildah)(reference, Path(scratch), folder / "image.tar")
        say(f"image {reference}: built")
        _sweep(folder.parent, component)

    return cached("images", _slug(reference), build) / "image.tar"


def _sweep(folder: Path, component: Component) -> None:
    """Keep the newest three archives of a component: each is a third of a gigabyte."""
    entries = sorted(folder.glob(f"{component.name}-*"), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in entries[3:]:
        shutil.rmtree(old, ignore_errors=True)


def _docker(reference: str, folder: Path, archive: Path) -> None:
    _run(["docker", "build", *_secret(), "--tag", reference, "--file", str(folder / "Containerfile"), str(folder)])
    _run(["docker", "save", "--output", str(archive), reference])


def _buildah(reference: str, folder: Path, archive: Path) -> None:
    _run([
        *_buildah_command(), "bud", "--isolation", "chroot", "--network", "host", "--pull-never", "--layers", *_secret(),
        "--build-arg", f"BASE={_base_reference()}", "--tag", reference, "--file", str(folder / "Containerfile"), str(folder),
    ])  # fmt: skip
    _run([*_buildah_command(), "push", "--quiet", reference, f"docker-archive:{archive}:{reference}"])


def _base_reference() -> str:
    return f"localhost/steelyard/base:{context.base_key()}"


def _ensure_base(say: Say) -> None:
    """Have the base in buildah's own store."""
    with locked(cache_root() / "buildah.lock"):
        present = subprocess.run(
            [*_buildah_command(), "images", "--quiet", _base_reference()], capture_output=True, check=False
        )
        if present.returncode == 0 and present.stdout.strip():
            return
        say("image base: Debian with Python, from Debian's packages")
        root = context.root_file_system()
        with tempfile.TemporaryDirectory(dir=root.parent) as scratch:
            os.link(root, Path(scratch) / "rootfs.tar")
            containerfile = REPOSITORY / "images" / "base" / "Containerfile"
            _run(
                [
                    *_buildah_command(),
                    "bud",
                    "--isolation",
                    "chroot",
                    "--tag",
                    _base_reference(),
                    "-f",
                    str(containerfile),
                    scratch,
                ]
            )


def _buildah_command() -> list[str]:
    """buildah with a store of ours, so that neither the machine's images nor ours get mixed up."""
    store = cache_root() / "buildah"
    return ["buildah", "--root", str(store / "root"), "--runroot", str(store / "run")]


def _secret() -> list[str]:
    """The machine's certificate authorities as the build secret `ca` (in no layer), for networks that answer with their own."""
    bundle = os.environ.get("PIP_CERT") or os.environ.get("SSL_CERT_FILE") or ssl.get_default_verify_paths().cafile
    return ["--secret", f"id=ca,src={bundle}"] if bundle and Path(bundle).is_file() else []


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-25:])
        raise ImageError(f"`{' '.join(command[:6])} …` failed with exit code {done.returncode}:\n{tail}")

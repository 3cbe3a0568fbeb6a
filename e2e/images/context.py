"""Fills a folder with what a Containerfile copies: requirements, our own wheel, prebuilt wheels, weights, a root file system."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

from e2e import lock
from e2e.cache import REPOSITORY, cached, content_key
from e2e.images import wheels
from e2e.images.components import LLAMA_ARGUMENTS, QUANTIZE, VLLM, Component, requirements
from e2e.kernels import site as quantize_site
from e2e.vllm import site

DEBIAN = "bookworm"
BASE_PACKAGES = ("ca-certificates", "libgomp1", "python3", "python3-venv", "tini")
_LEFT_OUT = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*")


def base_key() -> str:
    """What the base depends on; raise the date when its packages should be fetched anew."""
    return content_key([DEBIAN, *BASE_PACKAGES, *_LEFT_OUT, "2026-11"])


def root_file_system() -> Path:
    """`rootfs.tar` of a minimal Debian with Python (about 180 MB), made by mmdebstrap from the machine's Debian archive."""

    def build(folder: Path) -> None:
        command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(BASE_PACKAGES)}"]
        command += [f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT]
        command += ['--aptopt=APT::Install-Recommends "false"', DEBIAN, str(folder / "rootfs.tar")]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)

    return cached("base", base_key(), build) / "rootfs.tar"


def fill(component: Component, folder: Path) -> None:
    """Write the build context of `component` into the empty `folder`."""
    shutil.copy(component.folder / "Containerfile", folder / "Containerfile")
    if component.name == VLLM:
        shutil.copy(component.folder / "vllm", folder)
        site.fill(folder / "site")
        return
    if component.name == QUANTIZE:
        quantize_site.fill(folder / "site")
        return
    if component.package is None:
        (folder / "weights").mkdir()
        _link(wheels.weights(), folder / "weights")
        return
    lines = requirements(component)
    own = folder / "own"
    command = ["uv", "build", "--quiet", "--wheel", "--package", component.package, "-o", str(own)]
    subprocess.run(command, cwd=REPOSITORY, check=True)
    (own / ".gitignore").unlink(missing_ok=True)
    if component.extra == "llama":
        shutil.copy(LLAMA_ARGUMENTS, folder)
        (folder / "prebuilt").mkdir()
        (folder / "prebuilt" / "README").write_text("Wheels that need not be compiled in the image.\n")
        if same_system_as_image():
            _link(wheels.llama_wheel(), folder / "prebuilt")
            lines = lines.replace(
                lock.entry(lines, "llama-cpp-python"), ""
            )  # pip would prefer the source, whose hash the index tells
    (folder / "requirements.txt").write_text(lines)


def same_system_as_image() -> bool:
    """Whether a wheel compiled on this machine runs in the images: the same Debian on the same kind of processor."""
    return platform.machine() == "x86_64" and platform.freedesktop_os_release().get("VERSION_CODENAME") == DEBIAN


def _link(source: Path, folder: Path) -> None:
    """A hard link where the file system allows it, else a copy: weights need not lie twice on the disk."""
    try:
        os.link(source, folder / source.name)
    except OSError:
        shutil.copy(source, folder)

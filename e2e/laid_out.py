"""Packages of an image laid out in a folder: what a lock pins, changed to run without CUDA, and made small.

Laid out here and not in the image, so that the image needs neither a compiler nor the gigabytes that are left out.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from e2e import packages
from e2e.kernels import stubs

PYTHON = ("--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_34")  # the images' own


def lay_out(folder: Path, requirements: str, project: Path, tools: packages.Needed, pruned: Iterable[str]) -> None:
    """Fill the new folder `folder` with `requirements` (pinned, with hashes; found as `project` says), without CUDA's libraries
    and without what the patterns `pruned` match. Some hundred MB are fetched when uv's cache lacks them."""
    packages.install(tools, "Making torch independent of CUDA", _say)
    folder.mkdir()
    wanted = folder.with_name("requirements.txt")
    wanted.write_text(requirements)
    command = ["uv", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:", *PYTHON]
    # Copied, not linked: what is changed is ours, the installer's cache is not.
    command += ["--link-mode", "copy", "--target", str(folder), "--requirement", str(wanted)]
    environ = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    subprocess.run(command, cwd=project, env=environ, check=True)
    wanted.unlink()
    stubs.remove_cuda(folder)
    for pattern in pruned:
        for path in folder.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def overlay(source: Path, folder: Path) -> None:
    """Put our own files over the packages."""
    shutil.copytree(source, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)

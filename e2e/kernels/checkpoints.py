"""Tests that need two environments: the kernels' makes checkpoints, vLLM's loads them with our plug-in installed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

from e2e.kernels import environment as kernels
from e2e.vllm import environment as vllm

# One engine in one process, which pytest can look into; nothing listens but on the loopback.
ENGINE = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_HOST_IP": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}


def test(whole: bool, in_kernels: Callable[[Sequence[str], bool], int]) -> int:
    """Make the checkpoints, then run `tests/vllm`; returns the exit status."""
    with tempfile.TemporaryDirectory(prefix="steelyard-checkpoints-") as scratch:
        folder = Path(scratch)
        made = in_kernels(["tests/support/make_checkpoints.py", str(folder), *(["--whole"] if whole else [])], False)
        if made:
            return made
        _install_plugin(folder / "plugin")
        variables = {**vllm.variables(), **ENGINE, "STEELYARD_CHECKPOINTS": str(folder)}
        variables["PYTHONPATH"] = os.pathsep.join([str(folder / "plugin"), variables["PYTHONPATH"]])
        interpreter = vllm.python(lambda text: print(text, file=sys.stderr, flush=True))
        tests = (
            ["tests/vllm"]
            if whole
            else [f"tests/vllm/test_vllm_{name}.py" for name in ("order", "engine_order", "layers")]
        )
        command = [str(interpreter), "-m", "pytest", "-q", "--confcutdir=tests/vllm", *tests]
        return subprocess.run(command, cwd=kernels.PROJECT, env=variables, check=False).returncode


def _install_plugin(folder: Path) -> None:
    """The metadata by which vLLM finds the plug-in, as an installation of `kernels` would write them."""
    project = tomllib.loads((kernels.PROJECT / "pyproject.toml").read_text())["project"]
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = [
        line
        for group, entries in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {target}" for name, target in entries.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")

"""Which Python runs the gateways: the one that the images ship, where this machine has it.

The images take Debian's Python, an optimised build; one that was compiled here without profile-guided optimisation, as pyenv
does by default, serves a fifth fewer requests per CPU-second. Packages come from this environment either way.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import steelyard

_VERSION = "import platform; print(platform.python_version())"


@dataclass(frozen=True)
class Interpreter:
    """A Python, and the environment that lets it import what is installed here."""

    path: str
    words: str
    environment: Mapping[str, str] = field(default_factory=dict)


def interpreter() -> Interpreter:
    """The system's Python of this minor version (compiled packages fit no other), else the one that runs this."""
    system = Path(f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}")
    path = str(system if system.exists() else sys.executable)
    installed = os.pathsep.join((str(Path(steelyard.__file__).parents[1]), sysconfig.get_paths()["purelib"]))
    version = subprocess.run([path, "-c", _VERSION], check=True, capture_output=True, text=True).stdout.strip()
    whose = "the system's" if system.exists() else "this environment's"
    return Interpreter(path, f"{version} ({whose})", {**os.environ, "PYTHONPATH": installed})

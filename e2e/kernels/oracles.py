"""Libraries that the kernels' tests compare with and that clash with everything else: an environment each, made on demand.

`kernels/oracles/NAME` is the environment's project and `kernels/tests/oracles/test_NAME*.py` are the tests that run in it, with our
package beside the library.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from e2e import packages
from e2e.cache import cached, content_key
from e2e.kernels import environment, stubs

FOLDER = environment.PROJECT / "oracles"
NAMES = tuple(sorted(path.parent.name for path in FOLDER.glob("*/pyproject.toml")))
Say = Callable[[str], None]


def python(name: str, say: Say) -> Path:
    """The interpreter of an oracle's environment. Some 300 MB are fetched and 3 GB of disk taken when neither cache has them."""
    project = FOLDER / name

    def build(folder: Path) -> None:
        packages.install(environment.TOOLS, "Making torch independent of CUDA", say)
        say(f"installing {name} to compare with, once (about 3 GB of disk)")
        venv = folder / "venv"
        # Relocatable: the cache renames an entry once it is complete.
        subprocess.run(["uv", "venv", "--quiet", "--relocatable", "--python", sys.executable, str(venv)], check=True)
        variables = {**os.environ, "UV_PROJECT_ENVIRONMENT": str(venv)}
        variables.pop("VIRTUAL_ENV", None)
        subprocess.run(["uv", "sync", "--quiet", "--locked", "--project", str(project)], env=variables, check=True)
        stubs.remove_cuda(next(venv.glob("lib/python3.*/site-packages")))

    version = ".".join(map(str, sys.version_info[:3]))
    makers = [Path(__file__), *(Path(__file__).with_name(part) for part in ("stubs.py", "elf.py"))]
    key = content_key([project / "uv.lock", *makers, version, os.uname().machine])
    return cached(f"oracle-{name}", key, build) / "venv" / "bin" / "python"


def test(variables: Mapping[str, str], say: Say) -> int:
    """Run every oracle's tests; returns the exit status."""
    failed = 0
    for name in NAMES:
        tests = [str(path) for path in sorted((environment.PROJECT / "tests" / "oracles").glob(f"test_{name}*.py"))]
        command = [str(python(name, say)), "-m", "pytest", "-q", "--confcutdir=tests/oracles", *tests]
        say(f"comparing with {name}")
        failed += bool(subprocess.run(command, cwd=environment.PROJECT, env=dict(variables), check=False).returncode)
    return 1 if failed else 0

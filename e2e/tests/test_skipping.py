"""Where no cluster can run, the scenarios are skipped with a loud reason; in CI they fail instead."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from e2e.cache import REPOSITORY

# Not root, and no program on PATH: none of the backends is possible.
PROGRAM = """
import os, sys, pytest
os.geteuid = lambda: 1000
sys.exit(pytest.main(["-m", "cluster", "-q", "-p", "no:cacheprovider", "e2e/scenarios/test_demo.py"]))
"""


@pytest.mark.parametrize(
    ("ci", "status", "said"),
    [
        pytest.param("", 0, "END-TO-END SKIPPED, no cluster can run here: No cluster can be made here: run as root", id="at-home"),
        pytest.param("true", 1, "ClusterError: No cluster can be made here: run as root", id="in-ci"),
    ],
)  # fmt: skip
def test_without_a_cluster(ci: str, status: int, said: str) -> None:
    environment = {**os.environ, "PATH": "", "CI": ci, "STEELYARD_TEST_CLUSTER": "never-made"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == status, done.stdout + done.stderr
    assert said in done.stdout

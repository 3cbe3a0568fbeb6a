"""The local cluster itself: made, killed half-way, made again, with its state lost, and nothing left of it in the end."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.cache import REPOSITORY
from e2e.cluster import attach, remove
from e2e.cluster.local import leftovers, processes
from e2e.cluster.local.layout import Layout

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        os.geteuid() != 0 and not os.environ.get("CI"), reason="END-TO-END SKIPPED: the local cluster needs root"
    ),
]

LAYOUT = Layout.of("test-crash")
UP = [sys.executable, "-m", "e2e.cluster", "up", "--name", LAYOUT.name, "--backend", "local"]


def _host() -> tuple[set[str], set[str]]:
    """What a cluster could leave on the host beside its own things: mounts of its folders, and network interfaces."""
    mounts = {line for line in Path("/proc/self/mountinfo").read_text().splitlines() if f"/{LAYOUT.name}/" in line}
    return mounts, set(os.listdir("/sys/class/net"))


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Check after the test that removing the cluster leaves the host as it was."""
    remove(LAYOUT.name)
    before = _host()
    yield
    assert remove(LAYOUT.name)
    assert leftovers.find(LAYOUT) == leftovers.Leftovers([], [], None)
    assert _host() == before
    assert not remove(LAYOUT.name)


def _killed_when(moment: Callable[[], bool]) -> None:
    """Start `up` and kill it, and nothing else, at `moment`."""
    with subprocess.Popen(UP, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True) as up:
        while not moment():
            if up.poll() is not None:
                assert up.stderr is not None
                pytest.fail(f"`up` ended before it was killed: {up.stderr.read()}")
            time.sleep(0.02)
        up.kill()
    assert leftovers.find(LAYOUT)


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param(LAYOUT.state.exists, id="at-its-start"),
        pytest.param(lambda: "cp" in processes.machines(LAYOUT.name), id="first-machine"),
        pytest.param(LAYOUT.endpoint.exists, id="api-server-starting"),
        pytest.param(lambda: "node1" in processes.machines(LAYOUT.name), id="node-starting"),
    ],
)
@pytest.mark.usefixtures("nothing_left")
def test_a_killed_up_leaves_nothing_that_down_does_not_find(moment: Callable[[], bool]) -> None:
    _killed_when(moment)


@pytest.mark.usefixtures("nothing_left")
def test_up_after_a_crash_makes_a_healthy_cluster_which_goes_even_when_its_state_is_lost() -> None:
    _killed_when(lambda: "node1" in processes.machines(LAYOUT.name))
    again = subprocess.run(UP, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert "had left" in again.stderr
    cluster = attach(LAYOUT.name)
    assert cluster.ready()
    assert cluster.nodes == ["node1"]
    capacity = cluster.kubectl(
        "get", "node", "node1", "-o", r"jsonpath={.status.capacity.steelyard\.dev/simulated-accelerator}"
    )
    assert capacity == "16"
    running = subprocess.run([*UP, "--nodes", "2"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert "runs already and is healthy" in running.stderr
    assert cluster.nodes == ["node1", "node2"]
    shutil.rmtree(LAYOUT.state, ignore_errors=True)  # its programs go on and may write something anew
    shutil.rmtree(cluster.kubeconfig.parent)

"""What belongs to a local cluster on a host: processes, cgroups in both versions, and the removal of everything."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from e2e.cluster import ClusterError
from e2e.cluster.local import cgroups, leftovers, processes
from e2e.cluster.local.layout import Layout
from e2e.cluster.local.lock import exclusive


def _fake_process(proc: Path, pid: int, name: str, inner: str, environment: dict[str, str]) -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "environ").write_bytes("".join(f"{k}={v}\0" for k, v in environment.items()).encode())
    (folder / "status").write_text(f"Name:\t{name}\nState:\tS\nNSpid:\t{inner}\n")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc with two clusters `a` and `ab`, where `a` has a machine, what started it, and a program in it."""
    folder = tmp_path / "proc"
    for pid, name, inner, cluster, machine in (
        (10, "unshare", "10", "a", "cp"),
        (11, "pause", "11\t1", "a", "cp"),
        (12, "etcd", "12\t7", "a", "cp"),
        (13, "python3", "13", "a", ""),
        (20, "pause", "20\t1", "ab", "node1"),
    ):
        _fake_process(folder, pid, name, inner, processes.environment(cluster, machine))
    _fake_process(folder, 30, "bash", "30", {"PATH": "/bin", "NOTE": f"{processes.CLUSTER}=a"})
    (folder / "self").mkdir()
    return folder


def test_processes_are_found_by_the_clusters_name_and_no_other(proc: Path) -> None:
    assert {p.pid for p in processes.of_cluster("a", proc)} == {10, 11, 12, 13}
    assert {p.pid for p in processes.of_cluster("ab", proc)} == {20}
    assert list(processes.of_cluster("b", proc)) == []


def test_a_machine_is_its_pid_1_and_not_what_started_it(proc: Path) -> None:
    assert processes.machines("a", proc) == {"cp": 11}


def test_a_process_that_ends_while_it_is_looked_at_is_skipped(proc: Path) -> None:
    (proc / "12" / "environ").unlink()
    assert {p.pid for p in processes.of_cluster("a", proc)} == {10, 11, 13}


@contextmanager
def _sleeper(cluster: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [
        sys.executable,
        "-c",
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)",
    ]
    with subprocess.Popen(command, env=processes.environment(cluster)) as process:
        try:
            yield process
        finally:
            process.kill()


def test_killing_a_cluster_ends_its_processes_and_leaves_another_clusters_alone() -> None:
    with _sleeper("test-kill-one") as mine, _sleeper("test-kill-other") as other:
        assert processes.kill_all("test-kill-one") == 1
        assert mine.wait(10) == -9
        assert other.poll() is None
        assert processes.kill_all("test-kill-one") == 0


CONTROLLERS = ("cpu", "cpuset", "memory", "pids")


@pytest.fixture
def v1(tmp_path: Path) -> Path:
    root = tmp_path / "v1"
    for name in (*CONTROLLERS, "unified"):
        (root / name).mkdir(parents=True)
    (root / "cpuset" / "cpuset.cpus").write_text("0-1\n")
    (root / "cpuset" / "cpuset.mems").write_text("0\n")
    return root


@pytest.fixture
def v2(tmp_path: Path) -> Path:
    """A version 2 hierarchy; the folders are there before, because only a kernel fills new ones with files."""
    root = tmp_path / "v2"
    for folder in (root, root / "steelyard-x", root / "steelyard-x" / "node1"):
        folder.mkdir(parents=True)
        (folder / "cgroup.controllers").write_text("cpuset cpu io memory hugetlb pids\n")
    return root


def test_version_1_gets_folders_per_controller_and_cpusets_that_can_hold_processes(v1: Path) -> None:
    cgroups.create("steelyard-x", "node1", v1)
    cgroups.create("steelyard-x", "node2", v1)
    for controller in CONTROLLERS:
        assert (v1 / controller / "steelyard-x" / "node1").is_dir()
    for folder in ("steelyard-x", "steelyard-x/node1", "steelyard-x/node2"):
        assert (v1 / "cpuset" / folder / "cpuset.cpus").read_text() == "0-1\n"
        assert (v1 / "cpuset" / folder / "cpuset.mems").read_text() == "0\n"
    assert not (v1 / "unified" / "steelyard-x").exists()


def test_version_2_passes_the_needed_controllers_down_to_the_node(v2: Path) -> None:
    cgroups.create("steelyard-x", "node1", v2)
    for folder in (v2, v2 / "steelyard-x", v2 / "steelyard-x" / "node1"):
        assert (folder / "cgroup.subtree_control").read_text().split() == ["+cpu", "+cpuset", "+memory", "+pids", "+io"]


def test_version_2_without_a_needed_controller_is_refused_with_a_remedy(v2: Path) -> None:
    (v2 / "cgroup.controllers").write_text("cpu memory\n")
    with pytest.raises(ClusterError, match="offers no cpuset, pids, io controller"):
        cgroups.create("steelyard-x", "node1", v2)


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_removal_takes_the_whole_tree_of_one_cluster(version: str, tmp_path: Path) -> None:
    root = tmp_path / version
    tops = [root] if version == "v2" else [root / "cpu", root / "unified"]
    for top in tops:
        (top / "steelyard-x" / "node1" / "kubepods" / "pod1").mkdir(parents=True)
        (top / "steelyard-xy" / "node1").mkdir(parents=True)
    if version == "v2":
        (root / "cgroup.controllers").touch()
    assert cgroups.present("steelyard-x", root) == sorted(top / "steelyard-x" for top in tops)
    cgroups.remove("steelyard-x", root)
    assert cgroups.present("steelyard-x", root) == []
    assert cgroups.present("steelyard-xy", root) == sorted(top / "steelyard-xy" for top in tops)


def test_a_cgroup_that_stays_in_use_is_reported(tmp_path: Path) -> None:
    (tmp_path / "cpu" / "steelyard-x").mkdir(parents=True)
    (tmp_path / "cpu" / "steelyard-x" / "busy").touch()  # stands for processes: it keeps rmdir from succeeding
    with pytest.raises(ClusterError, match="cannot be removed"):
        cgroups.remove("steelyard-x", tmp_path, timeout=0.1)


def test_everything_of_a_cluster_is_found_and_removed_even_without_its_folder(tmp_path: Path) -> None:
    layout = Layout("test-leftovers", tmp_path / "clusters")
    neighbour = Layout("test-neighbour", layout.clusters)
    assert not leftovers.find(layout)
    neighbour.state.mkdir(parents=True)
    with _sleeper(layout.name) as process:
        assert leftovers.find(layout) == leftovers.Leftovers([process.pid], [], None)
        layout.state.mkdir()
        (layout.state / "log").touch()
        assert leftovers.find(layout).folder == layout.state
        assert leftovers.remove(layout)
        assert process.wait(10) == -9
    assert not leftovers.find(layout)
    assert not leftovers.remove(layout)
    assert neighbour.state.exists()


def test_two_commands_on_one_cluster_do_not_mix_and_the_lock_leaves_no_file(tmp_path: Path) -> None:
    one, other = Layout("one", tmp_path), Layout("other", tmp_path)
    with exclusive(one):
        with pytest.raises(ClusterError, match="at work on cluster 'one'"), exclusive(one):
            pass
        with exclusive(other):
            pass
    with exclusive(one):
        pass
    assert list(tmp_path.iterdir()) == []

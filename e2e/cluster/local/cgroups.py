"""The cgroup folders of a local cluster, in hierarchies of version 1 and 2.

The tests' machines have version 1; the version 2 part is unit-tested but not run by our tests.
"""

import time
from pathlib import Path

from e2e.cluster.errors import ClusterError

ROOT = Path("/sys/fs/cgroup")
NEEDED_V2 = ("cpu", "cpuset", "memory", "pids", "io")
_INHERITED = ("cpuset.cpus", "cpuset.mems")


def is_v2(root: Path = ROOT) -> bool:
    """Whether `root` is the single hierarchy of cgroup version 2."""
    return (root / "cgroup.controllers").exists()


def hierarchies(root: Path = ROOT) -> list[Path]:
    """The mount points under which a cluster's folders are made: `root` itself in version 2, else one per controller.

    The `unified` folder of a mixed set-up controls nothing, so it gets none.
    """
    if is_v2(root):
        return [root]
    return sorted(folder for folder in root.iterdir() if folder.is_dir() and folder.name != "unified")


def create(cluster: str, node: str, root: Path = ROOT) -> None:
    """Make the folders `cluster`/`node` in every hierarchy, with the settings that pods need there."""
    for hierarchy in hierarchies(root):
        above = hierarchy
        for part in (cluster, node):
            if is_v2(root):
                _delegate(above)
            folder = above / part
            folder.mkdir(exist_ok=True)
            if not is_v2(root) and (hierarchy / "cpuset.cpus").exists():
                # A new cpuset of version 1 is empty, and no process can live in it before it has CPUs and memory.
                for setting in _INHERITED:
                    (folder / setting).write_text((above / setting).read_text())
            above = folder
        if is_v2(root):
            _delegate(above)


def _delegate(folder: Path) -> None:
    """Let children of `folder` use the controllers that the kubelet needs (version 2)."""
    offered = (folder / "cgroup.controllers").read_text().split()
    if missing := [name for name in NEEDED_V2 if name not in offered]:
        raise ClusterError(
            f"The cgroup {folder} offers no {', '.join(missing)} controller, which the kubelet needs: "
            "run on the host itself, or in a container that has the host's cgroup namespace."
        )
    try:
        (folder / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in NEEDED_V2))
    except OSError as error:
        raise ClusterError(
            f"The cgroup {folder} holds processes of its own, so its controllers cannot be passed on ({error.strerror}): "
            "run on the host itself, or in a container that has the host's cgroup namespace, or use --backend kind."
        ) from error


def present(cluster: str, root: Path = ROOT) -> list[Path]:
    """The cluster's top folders that exist, in any hierarchy (`unified` too: a runtime may have made one there)."""
    candidates = [root, *(folder for folder in root.iterdir() if folder.is_dir())] if root.is_dir() else []
    return sorted({(folder / cluster).resolve() for folder in candidates if (folder / cluster).is_dir()})


def remove(cluster: str, root: Path = ROOT, timeout: float = 20.0) -> None:
    """Remove the cluster's folders; their processes must have been killed, but may take a moment to be gone."""
    deadline = time.monotonic() + timeout
    while folders := present(cluster, root):
        for top in folders:
            for folder in sorted((path for path in top.rglob("*") if path.is_dir()), reverse=True):
                _try_rmdir(folder)
            _try_rmdir(top)
        if time.monotonic() > deadline:
            raise ClusterError(
                f"The cgroups {', '.join(map(str, folders))} cannot be removed: processes still live in them."
            )
        time.sleep(0.05)


def _try_rmdir(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return

"""Ending a local cluster, whatever state it is in: running, half-made, or with its state folder lost."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.local import cgroups, processes
from e2e.cluster.local.layout import Layout
from e2e.cluster.local.node import MOUNT_POINTS


@dataclass(frozen=True)
class Leftovers:
    """What of a cluster is on this host: processes (their mounts and interfaces go with them), cgroups, its folder."""

    processes: list[int]
    cgroups: list[Path]
    folder: Path | None

    def __bool__(self) -> bool:
        return bool(self.processes or self.cgroups or self.folder)


def find(layout: Layout) -> Leftovers:
    """Look for everything that belongs to the cluster, by its name alone."""
    return Leftovers(
        processes=sorted(process.pid for process in processes.of_cluster(layout.name)),
        cgroups=cgroups.present(layout.cgroup),
        folder=layout.state if layout.state.exists() else None,
    )


def remove(layout: Layout) -> bool:
    """Remove everything that `find` finds and return whether there was anything.

    The order matters: a pid 1 takes its machine's processes with it, then the cgroups are empty, and only then nobody
    writes to the folder any more.
    """
    if not find(layout):
        return False
    processes.kill_all(layout.name)
    cgroups.remove(layout.cgroup)
    # rm and not shutil.rmtree: unpacked images have many files, and it must never follow a mount.
    subprocess.run(["rm", "-rf", "--one-file-system", str(layout.state)], check=True)
    if not any(folder.is_dir() for folder in layout.clusters.iterdir()):
        _remove_empty((*MOUNT_POINTS, Path("/tmp/hostpath_pv")))
    return True


def _remove_empty(folders: tuple[Path, ...]) -> None:
    """Remove mount points that are empty now; with other clusters running this would pull their mounts away."""
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:
            continue

"""One command at a time per cluster: two `up`s, or an `up` and a `down`, must not mix."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from e2e.cluster.errors import ClusterError
from e2e.cluster.local.layout import Layout


@contextmanager
def exclusive(layout: Layout) -> Iterator[None]:
    """Hold the cluster's lock; the kernel gives it up with the process, so a killed command blocks nobody."""
    path = layout.clusters / f".{layout.name}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ClusterError(f"Another command is at work on cluster {layout.name!r}; wait for it to end.") from None
        if not path.exists() or os.fstat(lock.fileno()).st_ino != path.stat().st_ino:
            raise ClusterError(f"Cluster {layout.name!r} was taken down at this moment; try again.")
        try:
            yield
        finally:
            path.unlink(missing_ok=True)

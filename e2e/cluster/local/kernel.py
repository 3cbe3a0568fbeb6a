"""What a local cluster needs of the running kernel."""

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from e2e.cluster.errors import ClusterError


def _modprobe(module: str) -> None:
    try:
        subprocess.run(["modprobe", module], capture_output=True, check=False)
    except FileNotFoundError:
        return


def missing(proc: Path = Path("/proc")) -> list[str]:
    """The kernel modules that are neither built in nor loaded: pods' traffic through a bridge, and layered file systems."""
    modules = []
    if not (proc / "sys" / "net" / "bridge" / "bridge-nf-call-iptables").exists():
        modules.append("br_netfilter")
    if "overlay" not in (proc / "filesystems").read_text().split():
        modules.append("overlay")
    return modules


def require(load: Callable[[str], None] = _modprobe, look: Callable[[], Sequence[str]] = missing) -> None:
    """Load what is missing, which outlives the cluster; raise `ClusterError` if that does not help."""
    for module in look():
        load(module)
    if still := look():
        raise ClusterError(
            f"The kernel lacks {', '.join(still)}: run `modprobe {' '.join(still)}` (in a container, on its host), "
            "or use --backend kind."
        )

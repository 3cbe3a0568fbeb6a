"""System packages of the local backend: what is missing, and installing it on Debian."""

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from e2e.cluster.errors import ClusterError

NEEDED: Mapping[str, str] = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "iptables": "iptables",
    "nft": "nftables",
    "ipset": "ipset",
    "conntrack": "conntrack",
    "ip": "iproute2",
    "sysctl": "procps",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "mount": "mount",
    "gcc": "gcc",
    "/usr/include/stdlib.h": "libc6-dev",
}
"""For each program (on PATH, or a file's full path) the Debian package that brings it."""

_PATH = f"{os.defpath}:/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin"


def present(item: str) -> bool:
    """Whether a program of `NEEDED` is there; system folders count even when the caller's PATH lacks them."""
    if item.startswith("/"):
        return Path(item).exists()
    return shutil.which(item) is not None or shutil.which(item, path=_PATH) is not None


def missing(there: Callable[[str], bool] = present) -> list[str]:
    """The packages of which some program is not there."""
    return sorted({package for item, package in NEEDED.items() if not there(item)})


def install(say: Callable[[str], None]) -> None:
    """Install what is missing with apt; raise `ClusterError` with the remedy where that is not possible."""
    names = missing()
    if not names:
        return
    wanted = " ".join(names)
    if not shutil.which("apt-get"):
        raise ClusterError(
            f"The local cluster needs the programs of these Debian packages: {wanted}. Install their like."
        )
    if os.geteuid() != 0:
        raise ClusterError(f"The local cluster needs packages: run `sudo apt-get install {wanted}`.")
    say(f"installing {wanted}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update", "-q"], ["install", "-q", "-y", "--no-install-recommends", *names]):
        done = subprocess.run(["apt-get", *command], env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ClusterError(f"apt-get {' '.join(command)} failed: {done.stderr.strip()[-1500:]}")
    if still := missing():
        raise ClusterError(f"apt-get reported success but these packages are still missing: {' '.join(still)}.")

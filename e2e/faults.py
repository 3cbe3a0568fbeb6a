"""Faults done to a running program or to the network: killed, stopped, out of memory, packets lost.

Processes are reached from inside their pods, as an owner of the cluster would, so these work on any cluster; tini is pid 1
there, and the program its child. Only `closed_port` needs a local cluster's nodes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from e2e.cluster import ClusterError
from e2e.cluster.local.machine import Machine
from e2e.platform import Platform

_FIND = """
import os, signal, sys
def command(pid):
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read().split(b"\\0")
others = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if pid not in (1, os.getpid())]
[program] = [pid for pid in others if any(b"/steelyard-" in word for word in command(pid))]
"""
_SIGNAL = "os.kill(program, getattr(signal, sys.argv[1]))"
_EXHAUST = """
import time
with open(f"/proc/{program}/oom_score_adj", "w") as file:
    file.write("1000")  # the kernel chooses the largest: many small ones eat the memory, and this much is added to the program
def alive():
    return os.path.exists(f"/proc/{program}")
while alive():
    if not os.fork():
        held = b"x" * (16 << 20)
        while alive():
            time.sleep(0.05)
        os._exit(0)
    time.sleep(0.05)
"""
_IN_PODS = """
import os, subprocess, sys
addresses, command, done = sys.argv[1].split(","), sys.argv[2:], set()
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            words = file.read().split(chr(0))
    except OSError:
        continue
    own = [word for word in words if word in addresses]
    if own and own[0] not in done and any(word.endswith("steelyard-engine") for word in words):
        subprocess.run(["nsenter", "--target", pid, "--net", *command], check=True)
        done.add(own[0])
print(len(done))
"""


def send(platform: Platform, namespace: str, pod: str, signal: str) -> None:
    """Send the program of a pod a signal: SIGKILL, SIGSTOP, SIGCONT. Killed, it is started anew by the kubelet."""
    with suppress(ClusterError) if signal == "SIGKILL" else _nothing():  # what ends the container ends this too
        _run(platform, namespace, pod, _SIGNAL, signal)


def exhaust_memory(platform: Platform, namespace: str, pod: str) -> None:
    """Take memory inside a pod until the kernel kills its program for it."""
    with suppress(ClusterError):
        _run(platform, namespace, pod, _EXHAUST)


@contextmanager
def closed_port(machines: Sequence[Machine], addresses: Sequence[str], port: int, how: str) -> Iterator[None]:
    """Keep all packets to a TCP port of the engines at these addresses from arriving, also on open connections.

    `how` is DROP (they are lost), or REJECT (the sender's connections are reset). The rule is set inside each pod's own
    network: on the node, the enforcer of policies puts its rules before all others whenever any pod comes or goes.
    """
    words = ["REJECT", "--reject-with", "tcp-reset"] if how == "REJECT" else [how]
    rule = ["INPUT", "-p", "tcp", "--dport", str(port), "-j", *words]

    def change(action: str) -> int:
        script = (sys.executable, "-c", _IN_PODS, ",".join(addresses), "iptables", "-w", action, *rule)
        return sum(int(machine.run(*script)) for machine in machines)

    try:
        assert change("-I") == len(addresses), "each engine's network has the rule"
        yield
    finally:
        change("-D")


def _run(platform: Platform, namespace: str, pod: str, script: str, *arguments: str) -> None:
    platform.kubectl("exec", "-n", namespace, pod, "--", "python3", "-c", _FIND + script, *arguments)


@contextmanager
def _nothing() -> Iterator[None]:
    yield

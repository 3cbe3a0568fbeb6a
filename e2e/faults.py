"""Faults done to a running program or to the network: killed, stopped, out of memory, packets lost, bytes changed.

Processes are reached from inside their pods, as an owner of the cluster would, so these work on any cluster; tini is pid 1
there, and the program its child. Only `closed_port`, `refused_from` and `damaged_port` need a local cluster's nodes.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

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
_ENGINES = """
import os, subprocess, sys
addresses, command, engines = sys.argv[1].split(","), sys.argv[2:], {}
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            words = file.read().split(chr(0))
    except OSError:
        continue
    own = [word for word in words if word in addresses]
    if own and any(word.endswith("steelyard-engine") for word in words):
        engines[own[0]] = ["nsenter", "--target", pid, "--net", *command]
"""
_ONCE = """
for one in engines.values():
    subprocess.run(one, check=True)
print(len(engines))
"""
_IN_NETWORK = """
import os, re, subprocess, sys
address, command = re.escape(sys.argv[1]), sys.argv[2:]
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        with open(f"/proc/{pid}/net/fib_trie") as file:
            own = re.search(rf"-- {address}\\n +/32 host LOCAL", file.read())
    except OSError:
        continue
    if own:
        subprocess.run(["nsenter", "--target", pid, "--net", *command], check=True)
        break
else:
    sys.exit(f"no process is in the network of {sys.argv[1]}")
"""
_HELD = """
running = [subprocess.Popen(one, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for one in engines.values()]
print(sum(one.stdout.readline() == b"ready\\n" for one in running), flush=True)
sys.stdin.read()
for one in running:
    one.communicate()
"""
_DAMAGE = """
import os, socket, struct, subprocess, sys, threading
port, mark = sys.argv[1], 0x5ca1e
listener = socket.create_server(("127.0.0.1", 0))
ours = ["OUTPUT", "-p", "tcp", "--dport", port, "-m", "mark", "!", "--mark", str(mark), "-j"]
rules = (  # new connections lead to us, those that are open end
    (["-t", "nat"], [*ours, "REDIRECT", "--to-ports", str(listener.getsockname()[1])]),
    ([], [*ours, "REJECT", "--reject-with", "tcp-reset"]),
)
def change(action):
    for table, rule in rules:
        subprocess.run(["iptables", "-w", *table, action, *rule], check=True)
def pump(source, sink, flip):
    try:
        while data := bytearray(source.recv(65536)):
            data[-1] ^= flip
            sink.sendall(data)
    except OSError:
        pass
    for one in (source, sink):
        try:
            one.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
def serve(client):
    _, port, address = struct.unpack_from("!HH4s", client.getsockopt(socket.SOL_IP, 80, 16))  # SO_ORIGINAL_DST
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, mark)
    server.connect((socket.inet_ntoa(address), port))
    threading.Thread(target=pump, args=(client, server, 0), daemon=True).start()
    pump(server, client, 1)
def accept():
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
threading.Thread(target=accept, daemon=True).start()
change("-I")
print("ready", flush=True)
sys.stdin.read()
change("-D")
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
        script = (sys.executable, "-c", _ENGINES + _ONCE, ",".join(addresses), "iptables", "-w", action, *rule)
        return sum(int(machine.run(*script)) for machine in machines)

    try:
        assert change("-I") == len(addresses), "each engine's network has the rule"
        yield
    finally:
        change("-D")


@contextmanager
def refused_from(machine: Machine, address: str, port: int, sources: Sequence[str]) -> Iterator[None]:
    """Let a pod's TCP port refuse the pods of some addresses, and nobody else; `machine` is the pod's node."""
    whom = f"-p tcp --dport {port} -s {','.join(sources)}"
    rule = f"INPUT {whom} -j REJECT --reject-with tcp-reset".split()

    def change(action: str) -> None:
        machine.run(sys.executable, "-c", _IN_NETWORK, address, "iptables", "-w", action, *rule)

    change("-I")
    try:
        yield
    finally:
        change("-D")


@contextmanager
def damaged_port(machines: Sequence[Machine], addresses: Sequence[str], port: int) -> Iterator[None]:
    """Change the last bit of every piece that the engines at these addresses receive from a TCP port of others.

    In each pod's own network a proxy takes the connections that begin there; those that are open are reset.
    """
    command = (sys.executable, "-c", _ENGINES + _HELD, ",".join(addresses), sys.executable, "-c", _DAMAGE, str(port))
    with ExitStack() as stack:
        held = [
            stack.enter_context(
                subprocess.Popen(one.command(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            for one in machines
        ]
        assert sum(int(_line(one)) for one in held) == len(addresses), "each engine's network has its proxy"
        yield


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def _run(platform: Platform, namespace: str, pod: str, script: str, *arguments: str) -> None:
    platform.kubectl("exec", "-n", namespace, pod, "--", "python3", "-c", _FIND + script, *arguments)


@contextmanager
def _nothing() -> Iterator[None]:
    yield

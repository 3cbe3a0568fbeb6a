"""Bringing a local cluster up, looking after it, and taking it down."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

from rich.console import Console

from e2e.cluster import build, kubeconfig, packages
from e2e.cluster.cluster import Cluster
from e2e.cluster.errors import ClusterError
from e2e.cluster.local import controlplane, dns, images, leftovers, machine, node, processes
from e2e.cluster.local.layout import API_PORT, CONTROL_PLANE, CONTROL_PLANE_IP, MAX_NODES, Layout, Node
from e2e.cluster.local.lock import exclusive
from e2e.cluster.local.machine import Machine

MANIFESTS = Path(__file__).with_name("manifests")
FORWARDER = Path(__file__).with_name("forward.py")
READY_SECONDS = 180
"""The longest wait for the API server or a node; on a machine at rest both take seconds."""

Say = Callable[[str], None]


class LocalCluster(Cluster):
    """A cluster in private namespaces of this host, see the package's own words."""

    backend: ClassVar[str] = "local"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.layout = Layout.of(name)

    @property
    def programs(self) -> Path:
        return self.layout.state / "bin"

    @property
    def kubectl_program(self) -> Path:
        return self.programs / "kubectl"

    def load(self, archives: Sequence[Path]) -> None:
        machines = [self.machine(name) for name in sorted(processes.machines(self.name)) if name != CONTROL_PLANE]
        with ThreadPoolExecutor(max(1, len(machines))) as pool:
            for job in [pool.submit(images.load, it, archives) for it in machines]:
                job.result()

    def down(self) -> None:
        take_down(self.name)

    def node_command(self, node: str, command: Sequence[str]) -> list[str]:
        return self.machine(node).command(command)

    def machine(self, name: str) -> Machine:
        """The running machine `name`: cp, node1, node2, …"""
        return machine.find(self.layout, name)

    def stop_kubelet(self, name: str, signal: str = "KILL") -> None:
        """End the kubelet of a node; its pods go on running, and the node becomes NotReady after a while."""
        self.machine(name).stop("kubelet", signal)

    def start_kubelet(self, name: str) -> None:
        """Start the kubelet of a node again and offer the simulated accelerators anew, which its start takes away."""
        node.start_kubelet(self.machine(name), Node(int(name.removeprefix("node"))), self.programs)
        self.kubectl("wait", "--for=condition=Ready", f"node/{name}", f"--timeout={READY_SECONDS}s")
        self.advertise(self.specification()["accelerators"])

    def stop_apiserver(self, signal: str = "KILL") -> None:
        """End the API server; everything else goes on without it."""
        self.machine(CONTROL_PLANE).stop("apiserver", signal)

    def start_apiserver(self) -> None:
        """Start the API server again and wait until it is ready."""
        self.machine(CONTROL_PLANE).start("apiserver", controlplane.apiserver(self.programs, self.layout.pki))
        self.wait_for_api()

    def wait_for_api(self) -> None:
        """Wait until the API server says that it is ready."""
        log = self.layout.logs / f"{CONTROL_PLANE}-apiserver.log"
        machine.wait_until(self._api_ready, "the API server to be ready", READY_SECONDS, log)

    def _api_ready(self) -> bool:
        try:
            return self.kubectl("get", "--raw", "/readyz", "--request-timeout=5s") == "ok"
        except ClusterError:
            return False

    def specification(self) -> dict[str, int]:
        """What the cluster was made with: `nodes` and `accelerators`; empty while `up` has not come to its end."""
        try:
            text = (self.layout.state / "specification.json").read_text()
        except FileNotFoundError:
            return {}
        return {key: int(value) for key, value in json.loads(text).items()}

    def specify(self, nodes: int, accelerators: int) -> None:
        """Write down what the cluster is made with; this marks it as complete."""
        text = json.dumps({"nodes": nodes, "accelerators": accelerators})
        (self.layout.state / "specification.json").write_text(text + "\n")

    def open_door(self) -> None:
        """Start the forwarder unless it runs, and write the kubeconfigs that use it."""
        endpoint = self.layout.endpoint
        known = json.loads(endpoint.read_text()) if endpoint.exists() else {"port": 0, "pid": 0}
        if known["pid"] not in [process.pid for process in processes.of_cluster(self.name)]:
            endpoint.unlink(missing_ok=True)
            inside = str(self.machine(CONTROL_PLANE).pid)
            log = self.layout.logs / "forward.log"
            with log.open("ab") as output:
                subprocess.Popen(
                    [
                        sys.executable,
                        "-I",
                        str(FORWARDER),
                        str(endpoint),
                        inside,
                        "127.0.0.1",
                        str(API_PORT),
                        str(known["port"]),
                    ],
                    env=processes.environment(self.name),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    cwd="/",
                )
            machine.wait_until(endpoint.exists, "the forwarder to listen", 20, log)
            known = json.loads(endpoint.read_text())
        server = f"https://127.0.0.1:{known['port']}"
        config = kubeconfig.from_files(f"steelyard-{self.name}", server, self.layout.pki, "admin")
        kubeconfig.write(self.kubeconfig, config)
        self.record()


def bring_up(
    name: str, console: Console, nodes: int = 1, accelerators: int = 16, archives: Sequence[Path] = ()
) -> LocalCluster:
    """Make the cluster `name`, or return it when it runs: then only nodes that it lacks are added."""
    if os.geteuid() != 0:
        raise ClusterError(
            "The local backend makes namespaces and network interfaces: run as root, or use --backend kind."
        )
    if not 1 <= nodes <= MAX_NODES:
        raise ClusterError(f"--nodes {nodes} is not between 1 and {MAX_NODES}.")
    cluster = LocalCluster(name)
    began = time.monotonic()

    def say(text: str) -> None:
        console.print(f"[dim]{time.monotonic() - began:6.1f} s[/dim]  {text}", highlight=False)

    packages.install(say)
    files = build.ensure(console)
    pause = images.pause() / "pause"
    with exclusive(cluster.layout):
        if not cluster.specification() and leftovers.remove(cluster.layout):
            say(f"removed what an unfinished cluster {name!r} had left")
        if cluster.specification():
            _check_running(cluster, say)
            cluster.load(archives)
        else:
            build.link(files, cluster.programs)
            _create(cluster, pause, archives, say)
        have = cluster.specification().get("nodes", 0)
        if nodes > have:
            _add_nodes(cluster, range(have + 1, nodes + 1), pause, archives, say)
        cluster.advertise(accelerators)
        cluster.specify(max(nodes, have), accelerators)
    say(f"cluster {name!r} is up with {max(nodes, have)} node(s)")
    return cluster


def _check_running(cluster: LocalCluster, say: Say) -> None:
    expected = {CONTROL_PLANE, *(Node(n + 1).name for n in range(cluster.specification()["nodes"]))}
    if missing := expected - set(processes.machines(cluster.name)):
        remedy = f"take it down first (down --name {cluster.name})."
        raise ClusterError(f"Cluster {cluster.name!r} has lost its machines {', '.join(sorted(missing))}: {remedy}")
    cluster.open_door()
    if not cluster.ready():
        raise ClusterError(
            f"Cluster {cluster.name!r} runs but is not healthy (see `status` and the logs in {cluster.layout.logs}): "
            f"repair it, or take it down (down --name {cluster.name})."
        )
    say(f"cluster {cluster.name!r} runs already and is healthy")


def _create(cluster: LocalCluster, pause: Path, archives: Sequence[Path], say: Say) -> None:
    """Make the control plane with DNS; nodes come after it."""
    layout, programs = cluster.layout, cluster.programs
    cp = controlplane.create(layout, pause)
    controlplane.start_storage_and_api(cp, programs)
    cluster.open_door()
    images.template(layout, archives)  # while the API server starts
    cluster.wait_for_api()
    say("API server ready")
    controlplane.start_controllers(cp, programs)
    cluster.kubectl("apply", "--server-side", "-f", MANIFESTS)
    dns.start(cp, programs)
    question = f"import socket; socket.create_connection(({CONTROL_PLANE_IP!r}, 53), 1)"
    machine.wait_until(lambda: _answers(cp, question), "DNS to answer", 60, cp.log("dns"))
    say("DNS answers")


def _answers(cp: Machine, question: str) -> bool:
    try:
        cp.run_in_network(sys.executable, "-c", question)
    except ClusterError:
        return False
    return True


def _add_nodes(cluster: LocalCluster, numbers: range, pause: Path, archives: Sequence[Path], say: Say) -> None:
    """Make the nodes `numbers` at the same time; they are Ready, with policies enforced, when this returns."""
    template = images.template(cluster.layout, archives)
    cp = cluster.machine(CONTROL_PLANE)

    def add(number: int) -> None:
        it = Node(number)
        machine.discard(cluster.layout, it.name)  # what an `up` that was killed while adding it has left
        made = node.create(cluster.layout, it, cp, cluster.programs, pause, template)
        for condition in ("create", "condition=Ready"):
            cluster.kubectl("wait", f"--for={condition}", f"node/{it.name}", f"--timeout={READY_SECONDS}s")
        say(f"{it.name} ready")
        node.start_firewall(made, it, cluster.programs)
        say(f"{it.name} enforces network policies")

    with ThreadPoolExecutor(len(numbers)) as pool:
        for job in [pool.submit(add, number) for number in numbers]:
            job.result()
    cluster.kubectl("wait", "--for=create", "serviceaccount/default", f"--timeout={READY_SECONDS}s")


def take_down(name: str) -> bool:
    """Remove the local cluster `name` and its leftovers; return whether there was anything to remove."""
    cluster = LocalCluster(name)
    found = leftovers.find(cluster.layout)
    if found and os.geteuid() != 0:
        raise ClusterError(f"Cluster {name!r} was made by root and can only be removed by root.")
    removed = False
    if found:
        with exclusive(cluster.layout):
            removed = leftovers.remove(cluster.layout)
    cluster.forget()
    return removed

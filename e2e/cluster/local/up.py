"""Bringing a local cluster up, or up to more nodes."""

import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from e2e import packages
from e2e.cluster import build
from e2e.cluster.errors import ClusterError
from e2e.cluster.local import controlplane, dns, images, kernel, leftovers, machine, node, processes, settings
from e2e.cluster.local.cluster import READY_SECONDS, LocalCluster
from e2e.cluster.local.layout import CONTROL_PLANE, CONTROL_PLANE_IP, MAX_NODES, Node
from e2e.cluster.local.lock import exclusive
from e2e.cluster.local.machine import Machine

MANIFESTS = Path(__file__).with_name("manifests")

Say = Callable[[str], None]


def bring_up(name: str, console: Console, nodes: int, accelerators: int, archives: Sequence[Path] = ()) -> LocalCluster:
    """Make the cluster `name`, or return it when it runs: then only nodes that it lacks are added."""
    if os.geteuid() != 0:
        raise ClusterError(
            "The local backend makes namespaces and network interfaces: run as root, or use --backend kind."
        )
    if not 1 <= nodes <= MAX_NODES:
        raise ClusterError(f"--nodes {nodes} is not between 1 and {MAX_NODES}.")
    cluster = LocalCluster(name)
    say = _stopwatch(console)
    packages.install(settings.NEEDED, settings.PURPOSE, say)
    kernel.require()
    files = build.ensure(console)
    pause = images.pause() / "pause"
    with exclusive(cluster.layout):
        complete = cluster.specification() and processes.machines(name)
        if complete:
            _check(cluster)
            say(f"cluster {name!r} runs already and is healthy")
            cluster.load(archives)
        else:
            if leftovers.remove(cluster.layout):
                say(f"removed what an unfinished or stopped cluster {name!r} had left")
            build.link(files, cluster.programs)
            _create_control_plane(cluster, pause, archives, say)
        have = cluster.specification().get("nodes", 0)
        if nodes > have:
            _add_nodes(cluster, range(have + 1, nodes + 1), pause, archives, say)
        cluster.advertise(accelerators)
        cluster.specify(max(nodes, have), accelerators)
    say(f"cluster {name!r} is up with {max(nodes, have)} node(s)")
    return cluster


def _stopwatch(console: Console) -> Say:
    began = time.monotonic()

    def say(text: str) -> None:
        console.print(f"[dim]{time.monotonic() - began:6.1f} s[/dim]  {escape(text)}", highlight=False)

    return say


def _check(cluster: LocalCluster) -> None:
    """Raise `ClusterError` if the running cluster is not healthy; only a lost forwarder is mended."""
    faults = cluster.faults()
    if CONTROL_PLANE not in faults:
        cluster.open_door()
    if faults or not cluster.ready():
        what = f"{', '.join(faults)} ended" if faults else "not every node is Ready"
        raise ClusterError(
            f"Cluster {cluster.name!r} runs but is not healthy: {what}. The logs are in {cluster.layout.logs}; "
            f"take it down (down --name {cluster.name}) and up again."
        )


def _create_control_plane(cluster: LocalCluster, pause: Path, archives: Sequence[Path], say: Say) -> None:
    """Make the machine `cp` and everything in it."""
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
    machine.wait_until(lambda: _dns_answers(cp), "DNS to answer", 60, cp.log("dns"))
    say("DNS answers")


def _dns_answers(cp: Machine) -> bool:
    question = f"import socket; socket.create_connection(({CONTROL_PLANE_IP!r}, 53), 1)"
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
    # Pods are refused in a namespace whose default service account the controllers have not made yet.
    cluster.kubectl("wait", "--for=create", "serviceaccount/default", f"--timeout={READY_SECONDS}s")

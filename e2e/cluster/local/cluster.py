"""A running local cluster: access, images, health, and the failures that tests make on purpose."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

from e2e.cluster import kubeconfig
from e2e.cluster.cluster import Cluster
from e2e.cluster.errors import ClusterError
from e2e.cluster.local import controlplane, images, leftovers, machine, node, processes
from e2e.cluster.local.layout import API_PORT, CONTROL_PLANE, Layout, Node
from e2e.cluster.local.lock import exclusive
from e2e.cluster.local.machine import Machine

FORWARDER = Path(__file__).with_name("forward.py")
READY_SECONDS = 180
"""The longest wait for the API server or a node; on a machine at rest both take seconds."""


class LocalCluster(Cluster):
    """A cluster in private namespaces of this host, see the package's own words."""

    backend: ClassVar[str] = "local"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.layout = Layout.of(name)

    @property
    def programs(self) -> Path:
        """The folder with every program under each of its names."""
        return self.layout.state / "bin"

    @property
    def kubectl_program(self) -> Path:
        return self.programs / "kubectl"

    def load(self, archives: Sequence[Path]) -> None:
        machines = [self.machine(name) for name in sorted(processes.machines(self.name)) if name != CONTROL_PLANE]
        with ThreadPoolExecutor(max(1, len(machines))) as pool:
            for job in [pool.submit(images.load, it, archives) for it in machines]:
                job.result()

    def down(self) -> bool:
        found = leftovers.find(self.layout)
        if found and os.geteuid() != 0:
            raise ClusterError(f"Cluster {self.name!r} was made by root and can only be removed by root.")
        removed = False
        if found:
            with exclusive(self.layout):
                removed = leftovers.remove(self.layout)
        self.forget()
        return removed

    def node_command(self, node: str, command: Sequence[str]) -> list[str]:
        return self.machine(node).command(command)

    def machine(self, name: str) -> Machine:
        """The running machine `name`: cp, node1, node2, …"""
        return machine.find(self.layout, name)

    def ready(self) -> bool:
        return not self.faults() and super().ready()

    def faults(self) -> list[str]:
        """What should run and does not: machines, or MACHINE/PROGRAM."""
        running = processes.machines(self.name)
        expected: dict[str, tuple[str, ...]] = {CONTROL_PLANE: controlplane.PROGRAMS}
        for number in range(1, self.specification().get("nodes", 0) + 1):
            expected[Node(number).name] = node.PROGRAMS
        gone = [name for name in expected if name not in running]
        dead = [
            f"{name}/{program}"
            for name, programs in expected.items()
            if name in running
            for program in programs
            if not self.machine(name).alive(program)
        ]
        return gone + dead

    def stop_kubelet(self, name: str, signal: str = "KILL") -> None:
        """End the kubelet of a node; its pods go on running, and the node becomes NotReady after a while."""
        self.machine(name).stop("kubelet", signal)

    def start_kubelet(self, name: str) -> None:
        """Start the kubelet of a node again, wait until it is Ready, and offer its simulated accelerators anew."""
        node.start_kubelet(self.machine(name), Node(int(name.removeprefix("node"))), self.programs)
        self.kubectl("wait", "--for=condition=Ready", f"node/{name}", f"--timeout={READY_SECONDS}s")
        self.advertise(self.specification()["accelerators"])

    def stop_apiserver(self, signal: str = "KILL") -> None:
        """End the API server, and the controller manager with it; everything else goes on without them.

        An elected controller manager ends by itself when it cannot renew its lease, and forgets what it knew. One that went on
        would take every node for lost the moment the API server is back, before the kubelets have told of themselves.
        """
        cp = self.machine(CONTROL_PLANE)
        cp.stop("apiserver", signal)
        cp.stop("controller-manager", signal)

    def start_apiserver(self) -> None:
        """Start the API server again, wait until it is ready, and start the controller manager."""
        cp = self.machine(CONTROL_PLANE)
        cp.start("apiserver", controlplane.apiserver(self.programs, self.layout.pki))
        self.wait_for_api()
        cp.start("controller-manager", controlplane.controller_manager(self.programs, self.layout.pki))

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
        """Start the forwarder unless it runs, and write the kubeconfig that uses it.

        It gets its last port again if that is free, so that kubeconfigs in other checkouts stay good.
        """
        endpoint = self.layout.endpoint
        known = json.loads(endpoint.read_text()) if endpoint.exists() else {"port": 0, "pid": 0}
        if known["pid"] not in [process.pid for process in processes.of_cluster(self.name)]:
            endpoint.unlink(missing_ok=True)
            self._start_forwarder(known["port"])
            known = json.loads(endpoint.read_text())
        server = f"https://127.0.0.1:{known['port']}"
        config = kubeconfig.from_files(f"steelyard-{self.name}", server, self.layout.pki, "admin")
        kubeconfig.write(self.kubeconfig, config)
        self.record()

    def _start_forwarder(self, port: int) -> None:
        endpoint, log = self.layout.endpoint, self.layout.logs / "forward.log"
        target = [str(self.machine(CONTROL_PLANE).pid), "127.0.0.1", str(API_PORT)]
        with log.open("ab") as output:
            subprocess.Popen(
                # Isolated (-I), or the modules beside it would hide those of the standard library.
                [sys.executable, "-I", str(FORWARDER), str(endpoint), *target, str(port)],
                env=processes.environment(self.name),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                cwd="/",
            )
        machine.wait_until(endpoint.exists, "the forwarder to listen", 20, log)

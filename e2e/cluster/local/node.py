"""A node of a local cluster: a machine with containerd, the kubelet, kube-proxy and the NetworkPolicy firewall."""

import json
from pathlib import Path

import yaml

from e2e.cluster.local import cgroups, controlplane, images, machine, pki, settings
from e2e.cluster.local.layout import CONTROL_PLANE_IP, DNS_SERVICE_IP, SERVICE_NETWORK, Layout, Node
from e2e.cluster.local.machine import Command, Machine

MOUNT_POINTS = (Path("/var/lib/kubelet"), Path("/var/lib/containerd"), Path("/var/lib/cni"))
"""Folders that must exist on the host so that a machine can mount its own over them."""

PROGRAMS = ("containerd", "kubelet", "proxy", "firewall")
"""Everything that runs on a node beside pods."""

_SYSCTLS = {
    "/proc/sys/vm/overcommit_memory": "1",
    "/proc/sys/kernel/panic": "10",
    "/proc/sys/kernel/panic_on_oops": "1",
    "/proc/sys/vm/panic_on_oom": "0",
}
"""What the kubelet wants of the kernel, shown to it by files mounted over the host's own."""


def create(layout: Layout, node: Node, cp: Machine, programs: Path, pause: Path, template: Path) -> Machine:
    """Make the machine of `node`, join it to the network and start its container runtime with the template's images."""
    it = machine.create(layout, node.name, pause)
    pki.create_node(layout.pki, node)
    controlplane.write_kubeconfig(layout, node.name)
    _join(cp, it, node)
    _mount(it, template)
    cgroups.create(layout.cgroup, node.name)
    networks = it.folder / "networks"
    networks.mkdir(exist_ok=True)
    (networks / "10-pods.conflist").write_text(json.dumps(settings.pod_network(node)))
    images.start_runtime(it, networks)
    _write_settings(it, node)
    start_kubelet(it, node, programs)
    it.start("proxy", [programs / "kube-proxy", f"--config={it.folder}/proxy.yaml"])
    return it


def start_kubelet(it: Machine, node: Node, programs: Path) -> None:
    """Start the kubelet (again) with the settings that `create` wrote."""
    it.start(
        "kubelet",
        [
            programs / "kubelet",
            f"--config={it.folder}/kubelet.yaml",
            f"--kubeconfig={it.layout.pki}/{node.name}.kubeconfig",
            f"--hostname-override={node.name}",
            f"--node-ip={node.ip}",
            "--root-dir=/var/lib/kubelet",
            "--cert-dir=/var/lib/kubelet/pki",
        ],
    )


def start_firewall(it: Machine, node: Node, programs: Path) -> None:
    """Start kube-router as firewall alone and wait until it enforces; the node must be registered, or it exits."""
    it.start(
        "firewall",
        [
            programs / "kube-router",
            "--run-firewall=true",
            "--run-router=false",
            "--run-service-proxy=false",
            "--enable-cni=false",
            f"--kubeconfig={it.layout.pki}/firewall.kubeconfig",
            f"--hostname-override={node.name}",
            f"--service-cluster-ip-range={SERVICE_NETWORK}",
            "--iptables-sync-period=1m",
        ],
    )
    # The mark 0x20000 stands in the last rule of the first complete synchronisation.
    rules = "iptables -w -S KUBE-ROUTER-FORWARD | grep -q 0x20000"
    machine.wait_until(
        lambda: it.succeeds("sh", "-c", rules), f"{node.name} to enforce NetworkPolicies", 60, it.log("firewall")
    )


def _join(cp: Machine, it: Machine, node: Node) -> None:
    """Connect the machine to the bridge in `cp`; node1 also carries the control plane's traffic to Services."""
    link = f"v{node.number}"
    # The new end of the pair is given to the node by its pid, which inside `cp` only its /proc of the host would know:
    # therefore this one command enters nothing but the network of `cp`.
    cp.run_in_network("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", str(it.pid))
    commands: list[Command] = [
        ["ip", "link", "set", link, "master", "br0", "up"],
        ["ip", "route", "replace", node.pods, "via", node.ip],
    ]
    if node.number == 1:
        commands.append(["ip", "route", "replace", SERVICE_NETWORK, "via", node.ip])
    it.run_all(
        [
            ["ip", "addr", "add", f"{node.ip}/24", "dev", "eth0"],
            ["ip", "link", "set", "eth0", "up"],
            ["ip", "route", "add", "default", "via", CONTROL_PLANE_IP],
            ["sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv4.conf.all.route_localnet=1"],
            ["sysctl", "-qw", "net.ipv4.conf.all.rp_filter=0", "net.bridge.bridge-nf-call-iptables=1"],
        ]
    )
    cp.run_all(commands)


def _mount(it: Machine, template: Path) -> None:
    """Mount private folders where the programs expect theirs, so that every program keeps its usual paths."""
    for point in MOUNT_POINTS:
        point.mkdir(parents=True, exist_ok=True)
    images.copy_template(it, template)
    commands: list[Command] = []
    for point in (*MOUNT_POINTS, Path("/var/log")):
        (it.folder / point.name).mkdir(exist_ok=True)
        commands.append(["mount", "--rbind", it.folder / point.name, point])
    commands.append(["mount", "--make-rshared", "/var/lib/kubelet"])
    for setting, value in _SYSCTLS.items():
        file = it.folder / f"sysctl-{Path(setting).name}"
        file.write_text(f"{value}\n")
        commands.append(["mount", "--bind", file, setting])
    it.run_all(commands)


def _write_settings(it: Machine, node: Node) -> None:
    resolver = it.folder / "resolv.conf"
    resolver.write_text(f"nameserver {DNS_SERVICE_IP}\n")
    for name, content in (
        ("kubelet", settings.kubelet(it.layout, node, resolver)),
        ("proxy", settings.kube_proxy(it.layout, node)),
    ):
        (it.folder / f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False))

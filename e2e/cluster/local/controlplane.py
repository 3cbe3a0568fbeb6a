"""The control plane of a local cluster: etcd, API server, controller manager and scheduler in the machine `cp`."""

import sys
from pathlib import Path

from e2e.cluster import kubeconfig
from e2e.cluster.local import machine, pki
from e2e.cluster.local.layout import (
    API_PORT,
    CONTROL_PLANE,
    CONTROL_PLANE_IP,
    POD_NETWORK,
    SERVICE_NETWORK,
    Layout,
)
from e2e.cluster.local.machine import Machine

ETCD = "http://127.0.0.1:2379"
ETCD_PEER = "http://127.0.0.1:2380"
SERVER = f"https://{CONTROL_PLANE_IP}:{API_PORT}"

PROGRAMS = ("etcd", "apiserver", "controller-manager", "scheduler", "volumes", "dns")
"""Everything that runs in `cp`."""

NODE_GRACE_SECONDS = 20
"""After this long without a sign of life a node is NotReady (the kubelets below renew every few seconds); Kubernetes'
own 40 to 50 s make every test of a lost node slow."""


def create(layout: Layout, pause: Path) -> Machine:
    """Make the machine `cp` with the bridge that joins all machines, and the certificates; start nothing yet."""
    cp = machine.create(layout, CONTROL_PLANE, pause)
    cp.run_all(
        [
            ["ip", "link", "add", "br0", "type", "bridge"],
            ["ip", "addr", "add", f"{CONTROL_PLANE_IP}/24", "dev", "br0"],
            ["ip", "link", "set", "br0", "up"],
            ["ip", "route", "add", "default", "dev", "br0"],
            ["sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv4.conf.all.rp_filter=0"],
        ]
    )
    pki.create(layout.pki)
    for user in ("admin", "controller-manager", "scheduler", "proxy", "firewall", "dns"):
        write_kubeconfig(layout, user)
    return cp


def write_kubeconfig(layout: Layout, user: str) -> Path:
    """Write the kubeconfig of `user` for programs inside the machines and return its path."""
    path = layout.pki / f"{user}.kubeconfig"
    return kubeconfig.write(path, kubeconfig.from_files(layout.name, SERVER, layout.pki, user))


def start_storage_and_api(cp: Machine, programs: Path) -> None:
    """Start etcd and the API server; whether they are ready is for the caller to find out."""
    cp.start("etcd", etcd(programs, cp.folder / "etcd"))
    cp.start("apiserver", apiserver(programs, cp.layout.pki))


def start_controllers(cp: Machine, programs: Path) -> None:
    """Start controller manager and scheduler, and what opens the volumes that the former makes.

    Only when the API server is ready: on a first start the controller manager gives up if it comes before the roles that
    the API server creates.
    """
    cp.start("controller-manager", controller_manager(programs, cp.layout.pki))
    cp.start("scheduler", scheduler(programs, cp.layout.pki))
    cp.start("volumes", [sys.executable, "-I", Path(__file__).with_name("volumes.py"), cp.layout.volumes])


def etcd(programs: Path, data: Path) -> list[str | Path]:
    """The command of etcd; a test cluster's data need not survive a power failure, so it does not wait for the disk."""
    return [
        programs / "etcd",
        "--name=cp",
        f"--data-dir={data}",
        "--unsafe-no-fsync",
        f"--listen-client-urls={ETCD}",
        f"--advertise-client-urls={ETCD}",
        f"--listen-peer-urls={ETCD_PEER}",
        f"--initial-advertise-peer-urls={ETCD_PEER}",
        f"--initial-cluster=cp={ETCD_PEER}",
        "--log-level=warn",
    ]


def apiserver(programs: Path, folder: Path) -> list[str | Path]:
    """The command of the API server; aggregator routing lets it reach webhooks behind Services without a kube-proxy."""
    return [
        programs / "kube-apiserver",
        f"--etcd-servers={ETCD}",
        "--bind-address=0.0.0.0",
        f"--advertise-address={CONTROL_PLANE_IP}",
        f"--secure-port={API_PORT}",
        f"--tls-cert-file={folder}/apiserver.crt",
        f"--tls-private-key-file={folder}/apiserver.key",
        f"--client-ca-file={folder}/ca.crt",
        f"--kubelet-client-certificate={folder}/apiserver-kubelet-client.crt",
        f"--kubelet-client-key={folder}/apiserver-kubelet-client.key",
        f"--kubelet-certificate-authority={folder}/ca.crt",
        "--kubelet-preferred-address-types=InternalIP",
        f"--service-account-key-file={folder}/sa.pub",
        f"--service-account-signing-key-file={folder}/sa.key",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--requestheader-client-ca-file={folder}/front-proxy-ca.crt",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={folder}/front-proxy-client.crt",
        f"--proxy-client-key-file={folder}/front-proxy-client.key",
        "--enable-aggregator-routing=true",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--service-cluster-ip-range={SERVICE_NETWORK}",
        "--profiling=false",
    ]


def controller_manager(programs: Path, folder: Path) -> list[str | Path]:
    """The command of the controller manager; pod networks are fixed per node, so it allocates none."""
    return [
        programs / "kube-controller-manager",
        *_clients(folder / "controller-manager.kubeconfig"),
        f"--root-ca-file={folder}/ca.crt",
        f"--service-account-private-key-file={folder}/sa.key",
        f"--cluster-signing-cert-file={folder}/ca.crt",
        f"--cluster-signing-key-file={folder}/ca.key",
        "--use-service-account-credentials=true",
        "--allocate-node-cidrs=false",
        f"--cluster-cidr={POD_NETWORK}",
        f"--node-monitor-grace-period={NODE_GRACE_SECONDS}s",
        "--node-monitor-period=2s",
        # The default of 20 requests a second makes the controllers' own start take five seconds.
        "--kube-api-qps=200",
        "--kube-api-burst=400",
        "--enable-hostpath-provisioner",
    ]


def scheduler(programs: Path, folder: Path) -> list[str | Path]:
    """The command of the scheduler."""
    return [programs / "kube-scheduler", *_clients(folder / "scheduler.kubeconfig")]


def _clients(config: Path) -> list[str]:
    kinds = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
    only_one = ["--leader-elect=false", "--bind-address=127.0.0.1", "--profiling=false"]
    return [f"--{kind}={config}" for kind in kinds] + only_one

"""The settings files of the programs on a node, as data."""

from pathlib import Path
from typing import Any

from e2e import packages
from e2e.cluster.local.layout import DNS_SERVICE_IP, POD_NETWORK, Layout, Node

PAUSE_IMAGE = "steelyard/pause:1"
SOCKET = "/run/containerd/containerd.sock"

NEEDED: packages.Needed = {
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
PURPOSE = "The local cluster"


def containerd(networks: Path) -> str:
    """containerd 1.6's settings; `networks` is the folder of the CNI file.

    What an unprivileged root cannot do (raise OOM scores, AppArmor, huge pages) is switched off.
    """
    return f"""\
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
oom_score = 0
[grpc]
  address = "{SOCKET}"
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  tolerate_missing_hugetlb_controller = true
  disable_hugetlb_controller = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{networks}"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
"""


def pod_network(node: Node) -> dict[str, Any]:
    """The CNI file: pods on a bridge, without masquerading, so source addresses stay visible across nodes."""
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": node.pods}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": "/var/lib/cni/ipam",
    }
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": False, "hairpinMode": True}
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [{**bridge, "ipam": addresses}, ports]}


def kubelet(layout: Layout, node: Node, resolver: Path) -> dict[str, Any]:
    """The kubelet's settings.

    `protectKernelDefaults` with the prepared files over four sysctls keeps it from writing the host's; disk is never a
    reason to evict, because the disk is the host's and holds other things.
    """
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "address": "0.0.0.0",
        "healthzBindAddress": "127.0.0.1",
        "readOnlyPort": 0,
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{layout.cgroup}/{node.name}",
        "failSwapOn": False,
        "protectKernelDefaults": True,
        "maxOpenFiles": 20000,
        "oomScoreAdj": 0,
        "resolvConf": str(resolver),
        "clusterDomain": "cluster.local",
        "clusterDNS": [DNS_SERVICE_IP],
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(layout.pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(layout.pki / f"{node.name}-serving.crt"),
        "tlsPrivateKeyFile": str(layout.pki / f"{node.name}-serving.key"),
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
            "memory.available": "100Mi",
        },
        "containerLogMaxSize": "5Mi",
        "syncFrequency": "10s",
        "nodeStatusUpdateFrequency": "4s",
        "nodeLeaseDurationSeconds": 16,
        "volumePluginDir": "/var/lib/kubelet/volumeplugins",
    }


def kube_proxy(layout: Layout, node: Node) -> dict[str, Any]:
    """kube-proxy's settings; the conntrack zeros keep it from writing the host's sysctls."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "bindAddress": "0.0.0.0",
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        "clientConnection": {"kubeconfig": str(layout.pki / "proxy.kubeconfig")},
        "hostnameOverride": node.name,
        "mode": "nftables",
        "clusterCIDR": POD_NETWORK,
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "nftables": {"minSyncPeriod": "0s", "syncPeriod": "30s"},
    }

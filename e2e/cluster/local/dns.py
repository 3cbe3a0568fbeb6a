"""Cluster DNS: CoreDNS in the machine `cp`, behind the Service kube-dns."""

from pathlib import Path

from e2e.cluster.local.layout import CONTROL_PLANE_IP
from e2e.cluster.local.machine import Machine


def corefile(kubeconfig: Path) -> str:
    """CoreDNS' settings: names of this cluster only, so a name outside fails at once instead of waiting for an uplink."""
    return f"""\
.:53 {{
  bind {CONTROL_PLANE_IP}
  errors
  health 127.0.0.1:8080
  kubernetes cluster.local in-addr.arpa {{
    kubeconfig {kubeconfig}
    ttl 2
  }}
}}
"""


def start(cp: Machine, programs: Path) -> None:
    """Start CoreDNS; its role and Service must have been applied."""
    settings = cp.folder / "Corefile"
    settings.write_text(corefile(cp.layout.pki / "dns.kubeconfig"))
    cp.start("dns", [programs / "coredns", "-conf", settings])

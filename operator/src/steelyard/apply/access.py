"""What the operator may do, and why: the table that the chart's RBAC is made of, verb by verb.

Rights of scope `watched` are given for the whole cluster, or, in namespaced mode, by Roles in the watched namespaces.
`own` is the operator's own namespace. `cluster` is needed for the whole cluster in both modes.
"""

from dataclasses import dataclass
from typing import Literal

from steelyard.api.labels import GROUP

Scope = Literal["watched", "own", "cluster"]  # the services' namespaces, the operator's own, the whole cluster


@dataclass(frozen=True)
class Access:
    """One right: verbs on one resource (or subresource), and what needs it."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    why: str
    scope: Scope = "watched"


CHILD = ("get", "list", "watch", "create", "patch", "delete")
LOOK = ("get", "list", "watch")
OWN = ("get", "list", "create", "patch", "delete")  # not watched
LWS = "leaderworkerset.x-k8s.io"

ACCESS: tuple[Access, ...] = (
    Access(GROUP, "inferenceservices", LOOK, "what users ask for"),
    Access(GROUP, "inferenceservices/status", ("patch",), "one status write per change, by server-side apply"),
    Access(
        GROUP, "inferenceservices/finalizers", ("update",), "children block their owner's deletion (OwnerReferences)"
    ),
    Access(GROUP, "accelerators", LOOK, "the hardware that services name", scope="cluster"),
    Access("", "pods", LOOK, "count replicas by role, see why one does not start; get, since gateways are given it"),
    Access(
        "",
        "pods",
        ("patch",),
        "change a replica's role by its label; mark the one that a scale-down takes; make gateways re-read their settings",
    ),
    Access("", "serviceaccounts", CHILD, "the gateway's identity"),
    Access("rbac.authorization.k8s.io", "roles", CHILD, "the gateway's right to see pods of its namespace"),
    Access("rbac.authorization.k8s.io", "rolebindings", CHILD, "gives that right to the gateway's account"),
    Access("", "configmaps", CHILD, "settings of gateways and engines; what the autoscaler tells gateways"),
    Access("", "services", CHILD, "the clients' address and one name a role"),
    Access("networking.k8s.io", "networkpolicies", CHILD, "who may reach engines and gateways"),
    Access("policy", "poddisruptionbudgets", CHILD, "node drains take one pod of a pool at a time"),
    Access("apps", "deployments", CHILD, "the pools of engines and the gateway"),
    Access("apps", "daemonsets", CHILD, "images on nodes before a replica comes"),
    Access("batch", "jobs", CHILD, "weights that are quantized once, before the engines start"),
    Access("", "pods/log", ("get",), "how far such a Job is: the last line of its log"),
    Access("apps", "deployments/scale", ("patch",), "replicas, the only place where the operator writes them"),
    Access(LWS, "leaderworkersets", OWN, "pools whose replicas span nodes, where the kind is installed"),
    Access("apps", "controllerrevisions", CHILD, "children of the current spec"),
    Access("events.k8s.io", "events", ("create",), "tell transitions to users"),
    Access("coordination.k8s.io", "leases", ("get", "create", "update"), "one leader of two replicas", scope="own"),
)

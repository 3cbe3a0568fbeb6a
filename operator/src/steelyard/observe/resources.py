"""Where each kind lives in the API: group, version and plural, and the paths made of them.

The table holds exactly the kinds that the operator reads or writes, so a new kind is one line here and one in the
access table (`apply/access.py`).
"""

from dataclasses import dataclass

from steelyard.api.labels import GROUP, VERSION


@dataclass(frozen=True)
class Resource:
    """One kind of the Kubernetes API; `group` is empty for the core group."""

    kind: str
    group: str
    version: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None, name: str | None = None, subresource: str | None = None) -> str:
        """Build the request path of a collection, an object or a subresource; no namespace means all of them."""
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/" + "/".join(parts)


INFERENCE_SERVICE = Resource("InferenceService", GROUP, VERSION, "inferenceservices")
ACCELERATOR = Resource("Accelerator", GROUP, VERSION, "accelerators", namespaced=False)
POD = Resource("Pod", "", "v1", "pods")
EVENT = Resource("Event", "events.k8s.io", "v1", "events")
LEASE = Resource("Lease", "coordination.k8s.io", "v1", "leases")
DEPLOYMENT = Resource("Deployment", "apps", "v1", "deployments")
JOB = Resource("Job", "batch", "v1", "jobs")
# Pools whose replicas span nodes. The kind may not be installed, so it is looked for only where a service has such a pool, and no
# watch is kept on it: its pods, which are watched, tell when to look.
LEADER_WORKER_SET = Resource("LeaderWorkerSet", "leaderworkerset.x-k8s.io", "v1", "leaderworkersets")
POOLS = (DEPLOYMENT, LEADER_WORKER_SET)
CONTROLLER_REVISION = Resource("ControllerRevision", "apps", "v1", "controllerrevisions")

# The kinds of children, in the order in which they are applied: what a pod needs comes before the pod.
CHILD_KINDS = (
    Resource("ServiceAccount", "", "v1", "serviceaccounts"),
    Resource("Role", "rbac.authorization.k8s.io", "v1", "roles"),
    Resource("RoleBinding", "rbac.authorization.k8s.io", "v1", "rolebindings"),
    Resource("ConfigMap", "", "v1", "configmaps"),
    Resource("Service", "", "v1", "services"),
    Resource("NetworkPolicy", "networking.k8s.io", "v1", "networkpolicies"),
    Resource("PodDisruptionBudget", "policy", "v1", "poddisruptionbudgets"),
    Resource("DaemonSet", "apps", "v1", "daemonsets"),
    JOB,
    DEPLOYMENT,
)

BY_KIND = {
    resource.kind: resource
    for resource in (
        INFERENCE_SERVICE,
        ACCELERATOR,
        POD,
        EVENT,
        LEASE,
        CONTROLLER_REVISION,
        LEADER_WORKER_SET,
        *CHILD_KINDS,
    )
}

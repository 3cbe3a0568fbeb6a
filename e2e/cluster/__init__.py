"""A Kubernetes cluster for demos and tests: one interface, three backends (an existing context, kind, local)."""

from e2e.cluster.cluster import Cluster
from e2e.cluster.errors import ClusterError
from e2e.cluster.make import attach, create, remove

__all__ = ["Cluster", "ClusterError", "attach", "create", "remove"]

"""The one writer of `replicas`: the `/scale` of Deployments, under a field manager of its own.

Because the children never hold `replicas`, anybody's autoscaler may write the same subresource when the mode leaves it
to them (docs/design/operator.md).

The write is a server-side apply, not a patch: the API server does not record who patched `/scale` as long as nobody
owns the field, and that record is how `decide/replicas.py` knows whether the number was ever written. It takes none to the
`/scale` of a custom kind ("request to convert CR to an invalid group/version"): of a LeaderWorkerSet the field itself is
applied. Where the set has just gone, that would be the creation of one without a template, which the API server refuses.
"""

from steelyard.api.labels import SCALER_MANAGER
from steelyard.observe.client import Api, Malformed, Missing
from steelyard.observe.resources import DEPLOYMENT, LEADER_WORKER_SET


def scale(api: Api, namespace: str, name: str, replicas: int, grouped: bool = False) -> None:
    """Set the number of replicas of one Deployment, or of a LeaderWorkerSet where they are `grouped`, and become its owner,
    until somebody else writes another. Raises `Missing` where there is no such object."""
    meta, spec = {"name": name, "namespace": namespace}, {"replicas": replicas}
    if grouped:
        group = LEADER_WORKER_SET
        number = {"apiVersion": group.api_version, "kind": group.kind, "metadata": meta, "spec": spec}
        try:
            api.apply(group, number, SCALER_MANAGER)
        except Malformed as refused:
            if api.find(group, namespace, name) is None:
                raise Missing(404, f"{group.kind} {name} is gone") from refused
            raise
    else:
        body = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": meta, "spec": spec}
        api.apply(DEPLOYMENT, body, SCALER_MANAGER, subresource="scale")

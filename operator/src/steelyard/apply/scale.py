"""The one writer of `replicas`: the `/scale` of Deployments, under a field manager of its own.

Because the children never hold `replicas`, anybody's autoscaler may write the same subresource when the mode leaves it
to them (docs/design/operator.md).

The write is a server-side apply, not a patch: the API server does not record who patched `/scale` as long as nobody
owns the field, and that record is how `decide/replicas.py` knows whether the number was ever written. It takes none to the
`/scale` of a custom kind ("request to convert CR to an invalid group/version"): of a LeaderWorkerSet the field itself is
applied.
"""

from steelyard.api.labels import SCALER_MANAGER
from steelyard.observe.client import Api
from steelyard.observe.resources import DEPLOYMENT, LEADER_WORKER_SET


def scale(api: Api, namespace: str, name: str, replicas: int, grouped: bool = False) -> None:
    """Set the number of replicas of one Deployment, or of a LeaderWorkerSet where they are `grouped`, and become its owner,
    until somebody else writes another."""
    meta, spec = {"name": name, "namespace": namespace}, {"replicas": replicas}
    if grouped:
        group = LEADER_WORKER_SET
        api.apply(
            group, {"apiVersion": group.api_version, "kind": group.kind, "metadata": meta, "spec": spec}, SCALER_MANAGER
        )
    else:
        body = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": meta, "spec": spec}
        api.apply(DEPLOYMENT, body, SCALER_MANAGER, subresource="scale")

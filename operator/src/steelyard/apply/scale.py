"""The one writer of `replicas`: the `/scale` of Deployments and LeaderWorkerSets, under a field manager of its own.

Because the children never hold `replicas`, anybody's autoscaler may write the same subresource when the mode leaves it
to them (docs/design/operator.md).

The write is a server-side apply, not a patch: the API server does not record who patched `/scale` as long as nobody
owns the field, and that record is how `decide/replicas.py` knows whether the number was ever written.
"""

from steelyard.api.labels import SCALER_MANAGER
from steelyard.observe.client import Api
from steelyard.observe.resources import DEPLOYMENT, LEADER_WORKER_SET


def scale(api: Api, namespace: str, name: str, replicas: int, grouped: bool = False) -> None:
    """Set the number of replicas of one Deployment, or of a LeaderWorkerSet where they are `grouped`, and become its owner,
    until somebody else writes another."""
    body = {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": replicas},
    }
    api.apply(LEADER_WORKER_SET if grouped else DEPLOYMENT, body, SCALER_MANAGER, subresource="scale")

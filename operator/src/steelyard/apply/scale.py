"""The one writer of `replicas`: the Deployments' `/scale`, under a field manager of its own.

Because the children never hold `replicas`, anybody's autoscaler may write the same subresource when the mode leaves it
to them (contracts.md, Replicas).
"""

from steelyard.api.labels import SCALER_MANAGER
from steelyard.observe.client import Api
from steelyard.observe.resources import DEPLOYMENT


def scale(api: Api, namespace: str, deployment: str, replicas: int) -> None:
    """Set the number of replicas of one Deployment."""
    api.merge(DEPLOYMENT, namespace, deployment, {"spec": {"replicas": replicas}}, SCALER_MANAGER, subresource="scale")

"""How a change of the service reaches its pods."""

from steelyard.api.quantities import Share
from steelyard.api.record import Record


class Rollout(Record):
    """How a change reaches the engines of each role. The gateway is replaced one pod at a time without loss."""

    max_unavailable: Share = Share("25%")
    """Replicas of a role, as a number or a percentage rounded down, that may be missing while pods are replaced. Default 25%."""
    max_surge: Share = Share("25%")
    """Replicas of a role, as a number or a percentage rounded up, that may run beyond the wanted ones while pods are
    replaced; they need free accelerators. Default 25%."""
    pause_on_objective_loss: bool = False
    """Whether replacing stops while the objectives are missed. Not carried out yet: true is refused. Default false."""

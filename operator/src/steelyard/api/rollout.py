"""How a change of the service reaches its pods."""

from steelyard.api.quantities import Share
from steelyard.api.record import Record


class Rollout(Record):
    """How a change reaches the engines. Roles are replaced together and in their ratio, so that replicas which can exchange KV
    serve at all times. An old replica goes when a new one of its role is ready, within these bounds; where new ones do not
    get ready, old ones go on serving. The gateway is replaced one pod at a time without loss."""

    max_unavailable: Share = Share("25%")
    """Replicas of a role, as a number or a percentage rounded down, that may be missing while pods are replaced. Default 25%."""
    max_surge: Share = Share("25%")
    """Replicas of a role, as a number or a percentage rounded up, that may run beyond the wanted ones while pods are
    replaced; they need free accelerators. Default 25%."""
    pause_on_objective_loss: bool = False
    """Whether replacing waits while fewer requests of the last half minute than `objectives.attainment` meet the objectives,
    once they were met since it began. It goes on when they are met again, when too few requests are judged to tell, and with
    another spec. A new replica then serves for three quarters of a minute before an old one goes for it. Needs an objective,
    and an operator that reads a Prometheus; without one nothing waits. Default false."""

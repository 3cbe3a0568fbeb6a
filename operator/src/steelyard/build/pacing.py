"""A Deployment during a rollout: it does what the step says (`decide/rollout.py`), and nothing more by itself.

As long as a new pod must have been ready for ten years to count as available, the Deployment controller counts old pods alone:
it keeps replicas − maxUnavailable of them, and makes new ones up to replicas + maxSurge in all. So the two numbers of its strategy
say exactly how many pods of either kind there are. No template depends on them: writing them restarts nothing.
"""

from steelyard.api.labels import POOL
from steelyard.build.meta import Body
from steelyard.decide.rollout import Rollout

NEVER_SECONDS = 315_360_000  # a new pod counts as available after ten years


def paced(child: Body, rollout: Rollout | None, paused: bool) -> Body:
    """Give a child as it is to be held during the rollout; only the pools that it replaces differ."""
    step = rollout.steps.get(child["metadata"]["labels"].get(POOL, "")) if rollout is not None else None
    if step is None or child["kind"] != "Deployment":
        return child
    held: Body = {"paused": True} if paused or step.held else {}
    pace = {
        "minReadySeconds": NEVER_SECONDS,
        "progressDeadlineSeconds": NEVER_SECONDS + 1,  # must be longer; what does not start is seen by its pods
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": step.surge, "maxUnavailable": step.unavailable},
        },
        **held,
    }
    if step.held:  # neither number may be used, and the API server wants one that is not 0
        pace["strategy"]["rollingUpdate"]["maxUnavailable"] = 1
    return {**child, "spec": {**child["spec"], **pace}}

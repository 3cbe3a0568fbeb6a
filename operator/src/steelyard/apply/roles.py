"""Writes to single engine pods: what a pod does now (its role), and which one a scale-down takes.

Both are labels and annotations that nothing in a pod's template holds, changed on exactly the pod that was seen: another
one of its name is left alone. A pod that is gone needs nothing.
"""

from steelyard.api.labels import FIELD_MANAGER, ROLE
from steelyard.observe.client import Api, Conflict, Missing
from steelyard.observe.replicas import DELETION_COST
from steelyard.observe.resources import POD


def relabel(api: Api, namespace: str, pod: str, uid: str, role: str) -> bool:
    """Give a pod another role; gives whether the pod was still there."""
    return _merge(api, namespace, pod, uid, {"metadata": {"labels": {ROLE: role}}})


def mark(api: Api, namespace: str, pod: str, uid: str, cost: int | None) -> bool:
    """Set the cost of deleting a pod, by which its ReplicaSet chooses whom to take (lowest first), or take it off."""
    value = None if cost is None else str(cost)
    return _merge(api, namespace, pod, uid, {"metadata": {"annotations": {DELETION_COST: value}}})


def _merge(api: Api, namespace: str, pod: str, uid: str, change: dict[str, object]) -> bool:
    try:
        api.merge(POD, namespace, pod, uid, change, FIELD_MANAGER)
    except (Missing, Conflict):
        return False
    return True

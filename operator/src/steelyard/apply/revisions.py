"""ControllerRevisions: the rendered children of a service's specs, of which the highest number is in force.

The revision is stored before its children are applied, so that an operator killed in between goes on with the same.
"""

from collections.abc import Sequence

from steelyard.api.labels import FIELD_MANAGER
from steelyard.observe.client import Api, Body
from steelyard.observe.resources import CONTROLLER_REVISION

KEPT = 3


def store(api: Api, revision: Body) -> None:
    """Write a revision; one of the same content is there already and only gets the new number."""
    api.apply(CONTROLLER_REVISION, revision, FIELD_MANAGER)


def keep_latest(api: Api, namespace: str, revisions: Sequence[Body]) -> None:
    """Delete all but the latest revisions; `revisions` is sorted, oldest first."""
    for body in revisions[:-KEPT]:
        meta = body["metadata"]
        api.delete(CONTROLLER_REVISION, namespace, meta["name"], uid=meta["uid"])

"""When each pod was ready for the first time, which a pod does not tell: its condition holds the latest change only.

A replica of five hours that loses its readiness for a moment would otherwise look like one that took five hours to start. So
looks at a service hand on what they know of its pods, by uid; first row that holds:

| the pod | so far | from now on |
|---|---|---|
| any | was ready first at a known moment | that moment |
| is ready | was seen before it was ever ready | since when it is: too late by less than two looks lie apart |
| is ready | was not seen before | nothing is known, for good: it may be the first time or any other |
| is not, and was not since its engine's process began | either | it was never ready |
| is not, and was meanwhile | either | nothing is known, for good |

So an operator that begins knows nothing of the pods that are ready already, and learns from those that still start.
"""

from collections.abc import Iterable, Mapping

from steelyard.observe.client import Body
from steelyard.observe.pods import engine_status, ready_condition, seconds

Known = Mapping[str, float | None]  # uid → when it was ready first, in unix seconds; None: never yet


def first_ready(pods: Iterable[Body], before: Known) -> dict[str, float | None]:
    """What is known after a look at `pods`, by the table above; pods that are gone, or of which nothing is known, are not in it."""
    known: dict[str, float | None] = {}
    for body in pods:
        uid, condition = body["metadata"]["uid"], ready_condition(body)
        if before.get(uid) is not None:
            known[uid] = before[uid]
        elif condition.get("status") != "True":
            if not _was_ready(body, condition):
                known[uid] = None
        elif uid in before and (moment := seconds(condition.get("lastTransitionTime"))) is not None:
            known[uid] = moment
    return known


def _was_ready(body: Body, condition: Body) -> bool:
    """Whether a pod that is not ready may have been: kubelets say that it is not before its containers begin, and change the
    moment only with the answer."""
    engine = engine_status(body)
    began = seconds(((engine.get("state") or {}).get("running") or {}).get("startedAt"))
    lost = seconds(condition.get("lastTransitionTime"))
    return bool(engine.get("restartCount")) or (began is not None and lost is not None and lost > began)

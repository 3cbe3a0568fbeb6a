"""Does a rollout wait because the objectives are missed? What is remembered of it stands in `status.rollout`.

| attainment of the last half minute | the objectives were met since it began | it waits |
|---|---|---|
| not known: nobody measures, too few requests were judged, or it was long ago | either | no |
| at or above the objective | from now on | no |
| below | no | no: there was nothing to lose, and the change may be the cure |
| below | yes | yes, until they are met again, or another spec makes another rollout |

While waiting is asked for, a new pod replaces an old one only after it has served for longer than is looked back, so that what
it does to the requests is seen before the next step, and not mixed with what was before it.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from steelyard.api.service import InferenceService
from steelyard.api.status import RolloutStatus
from steelyard.decide.rollout import Rollout
from steelyard.decide.snapshot import Body

WINDOW_SECONDS = 30  # that is looked back
SEASON_SECONDS = (
    45.0  # that a new pod serves before an old one goes for it: the window, and a scrape, a tick and a look
)
JUDGED_ENOUGH = 20  # requests of the window: of fewer, one that is late by chance would count for more than 5 %
STALE_SECONDS = 120.0  # after which a share that was measured says nothing any more


@dataclass(frozen=True)
class Judged:
    """What gateways judged in one window: requests that met all objectives, of all; `at` in unix seconds."""

    met: float
    requests: float
    at: float


def share(judged: Judged | None, now: float) -> float | None:
    """The percent of requests that met the objectives, where that is known."""
    if judged is None or judged.requests < JUDGED_ENOUGH or now - judged.at > STALE_SECONDS:
        return None
    return 100 * judged.met / judged.requests


def waits(service: InferenceService | None) -> bool:
    """Whether the spec asks for rollouts that wait."""
    return service is not None and service.spec.rollout.pause_on_objective_loss


def progress(
    service: InferenceService | None,
    revision: str,
    found: Rollout,
    before: RolloutStatus | None,
    judged: Judged | None,
    now: float,
) -> RolloutStatus:
    """Say how far the rollout of `revision` is and whether it waits, by the table above; `before` is what status held."""
    if before is None or before.revision != revision:
        before = RolloutStatus(revision=revision, since=datetime.fromtimestamp(now, UTC).replace(microsecond=0))
    attained = share(judged, now) if waits(service) else None
    goal = service.spec.objectives.attainment if service is not None else 0.0
    were_met = before.objectives_were_met or (attained is not None and attained >= goal)
    paused = None
    if attained is not None and judged is not None and attained < goal and were_met:
        paused = before.paused or (
            f"{attained:.1f} % of {judged.requests:.0f} requests of the last half minute met the objectives and {goal:g} %"
            f" are asked; it stays at {found} until they are met again or the spec is changed"
        )
    return RolloutStatus(
        revision=revision, since=before.since, objectives_were_met=were_met, paused=paused, **found.done
    )


def previous(service: Body) -> RolloutStatus | None:
    """Read what status holds of a rollout; what cannot be read counts as nothing."""
    try:
        body = (service.get("status") or {}).get("rollout")
        return RolloutStatus.read(body) if body else None
    except ValueError:
        return None

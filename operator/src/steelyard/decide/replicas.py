"""How many replicas each Deployment shall have, as far as anybody but the user's own autoscaler decides it.

Law, first row that holds; `None` means that nothing is written:

| the number was never written | mode | write |
|---|---|---|
| yes | any | `initial` (default `min`), also where it runs already: the write makes us its owner |
| no | Off, Recommend | nothing: `kubectl scale` or anybody's autoscaler rules |
| no | Auto, without an autoscaler | what runs, brought into min..max, if that differs |
| no | Auto, with one | nothing: the autoscaler writes it, within the bounds too (`decide/scale`) |

Bounds are those of the moment: `schedule.py` raises minima for known peaks. The gateway's number is `routing.replicas` in every
mode. "Never written" is read from the Deployment's own record of field owners, so that an operator killed between creation and
scaling goes on where it stopped.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from steelyard.api.roles import Replicas
from steelyard.api.service import InferenceService
from steelyard.decide.snapshot import Deployment

Mode = Literal["Auto", "Recommend", "Off"]

CREATED_WITH = 1  # replicas of a Deployment whose manifest does not say a number
GATEWAY_POOL = ""


@dataclass(frozen=True)
class Scale:
    """One write of a Deployment's number of replicas."""

    pool: str
    replicas: int
    before: int


def wanted(bounds: Replicas, mode: Mode, runs: int, written: bool, autoscaled: bool = False) -> int | None:
    """Decide one pool's number by the table above."""
    if not written:
        return bounds.clamp(bounds.start)
    if mode != "Auto" or autoscaled:
        return None
    clamped = bounds.clamp(runs)
    return clamped if clamped != runs else None


def scales(
    service: InferenceService, deployments: Mapping[str, Deployment], autoscaled: bool = False
) -> tuple[Scale, ...]:
    """Decide every Deployment's number; one that does not exist yet is about to be created with one replica."""
    found = []
    for role, spec in service.spec.roles.items():
        seen = deployments.get(role)
        runs = seen.replicas if seen else CREATED_WITH
        written = seen.replicas_written if seen else False
        number = wanted(spec.replicas, service.spec.autoscaling.mode, runs, written, autoscaled)
        if number is not None:
            found.append(Scale(role, number, runs))
    gateway = deployments.get(GATEWAY_POOL)
    gateways = gateway.replicas if gateway else CREATED_WITH
    if gateways != service.spec.routing.replicas:
        found.append(Scale(GATEWAY_POOL, service.spec.routing.replicas, gateways))
    return tuple(found)

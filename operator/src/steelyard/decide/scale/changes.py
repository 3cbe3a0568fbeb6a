"""Role changes under way, and pools that cannot grow: what earlier decisions still mean."""

from collections.abc import Mapping
from dataclasses import dataclass

from steelyard.api.labels import PREFILL
from steelyard.decide.scale.census import Census
from steelyard.decide.scale.decision import Conversion, LimitedBy, Memory
from steelyard.decide.scale.signals import Phase, Signals

CONFIRM_SECONDS = 10.0  # until a role change must show in the pod's label
PAUSE_SECONDS = 300.0  # without role changes after one that did not; without growth after a lack of nodes
DRAINED_SHARE = 0.1  # of R: with so few sequences left a replica counts as converted
LONGEST_CONVERSION_SECONDS = 600.0
LEAST_REPLICAS = 6  # of both roles, for role changes to be worth it


@dataclass(frozen=True, slots=True)
class Conversions:
    """Role changes that are not finished, and whether new ones may begin."""

    pending: dict[str, Conversion]
    paused_until: float


def follow(memory: Memory, signals: Signals, held: float) -> Conversions:
    """Look after the role changes of earlier ticks; `held` is R.

    One that a pod's label does not show within `CONFIRM_SECONDS` pauses all role changes. Decode → prefill is finished
    when the pod's sequences are (nearly) gone, prefill → decode as soon as the label shows it.
    """
    now, pods = signals.time, {r.name: r for r in signals.replicas}
    pending: dict[str, Conversion] = {}
    paused = memory.no_role_change_until
    for name, change in memory.conversions.items():
        pod = pods.get(name)
        if pod is None or pod.phase is not Phase.READY:
            continue
        if pod.role != change.target:
            if now - change.since > CONFIRM_SECONDS:
                paused = now + PAUSE_SECONDS
            else:
                pending[name] = change
        elif change.target == PREFILL and now - change.since < LONGEST_CONVERSION_SECONDS:
            left = pod.running if pod.running is not None else float("inf")
            if left > DRAINED_SHARE * held:
                pending[name] = change
    return Conversions(pending, paused)


def interchangeable(census: Census) -> bool:
    """Whether all ready replicas could do each other's work: one kv-group, and known."""
    groups = {r.kv_group for r in census.ready}
    return len(groups) == 1 and "" not in groups


def blocked(pool: str, census: Census, signals: Signals, scarce_until: Mapping[str, float]) -> LimitedBy | None:
    """Say why a pool may not grow now: the cluster had no node for its last replica, or its newest do not come up while
    nothing that started since then has. Replicas that were up and are lost with their node are replaced."""
    mine = [r for r in signals.replicas if r.pool == pool and r.phase is not Phase.DRAINING]
    if signals.time < scarce_until.get(pool, 0.0) or any(r.phase is Phase.UNSCHEDULABLE for r in mine):
        return LimitedBy.UNSCHEDULABLE
    lost = {r.name for r in census.lost}
    bad = [r.since for r in mine if r.phase is Phase.FAILING or (r.name in lost and not r.started)]
    up = [r.since for r in mine if r.phase is Phase.READY]
    if (bad and max(bad) > max(up, default=float("-inf"))) or census.missing.get(pool, 0) > 0:
        return LimitedBy.START_FAILING
    return None

"""Who is there: ready replicas, coming ones (for a bounded time), and those that do not come.

| replica | counts as |
|---|---|
| ready | capacity |
| starting, failing, or asked for and not created: within the deadline | coming capacity |
| the same, past the deadline; unschedulable | nothing, and it is the first to go |
| draining | nothing, but its accelerators are not free yet |

The deadline is twice the start-up time, ten minutes while no start has been measured. What a Deployment does not ask
for any more is on its way out (a surge, a scale-down not carried out yet) and is left out, in the order of removal.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from steelyard.decide.scale.signals import Phase, Replica, Signals

UNSCHEDULABLE_SECONDS = 60.0  # until a replica without a node is withdrawn
UNMEASURED_DEADLINE_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Census:
    """The live replicas (not draining, not withdrawn), each list in the order in which it would be removed."""

    ready: tuple[Replica, ...]
    coming: tuple[Replica, ...]  # newest first
    lost: tuple[Replica, ...]  # past their deadline, or unschedulable
    withdrawn: tuple[Replica, ...]  # unschedulable for too long: to be removed at once
    draining: Mapping[str, int]  # role → replicas
    unborn: Mapping[str, int]  # pool → asked for, not created, and still coming
    missing: Mapping[str, int]  # pool → asked for, not created, past the deadline

    def ready_of(self, role: str) -> tuple[Replica, ...]:
        """The ready ones of a role."""
        return tuple(r for r in self.ready if r.role == role)

    def relabelled(self, flips: Iterable[tuple[str, str]]) -> "Census":
        """The same once those pods have their new roles."""
        new = dict(flips)
        ready = tuple(replace(r, role=new[r.name]) if r.name in new else r for r in self.ready)
        return replace(self, ready=ready)

    def have(self, role: str) -> int:
        """Ready and coming replicas of a role: what counts as capacity."""
        return (
            sum(r.role == role for r in self.ready)
            + sum(r.role == role for r in self.coming)
            + self.unborn.get(role, 0)
        )

    def held(self, role: str) -> int:
        """All live replicas that do or will do a role: what is paid for, draining ones apart."""
        return self.have(role) + sum(r.role == role for r in self.lost) + self.missing.get(role, 0)


def deadline_seconds(start_seconds: float, samples: int) -> float:
    """How long a replica that is not ready counts as coming."""
    return 2 * start_seconds if samples else max(UNMEASURED_DEADLINE_SECONDS, 2 * start_seconds)


def load_order(replica: Replica) -> tuple[float, float, str]:
    """Least work first: sequences in it, then prompt tokens still to compute; an unknown load counts as most."""
    known = replica.running is not None
    work = (replica.running or 0.0) + (replica.waiting or 0.0) if known else float("inf")
    return work, replica.outstanding_tokens or 0.0, replica.name


def count(signals: Signals, deadline: float, grew: Mapping[str, float]) -> Census:
    """Sort every replica into the table above."""
    now = signals.time
    draining: dict[str, int] = {}
    pools: dict[str, list[Replica]] = {pool: [] for pool in signals.asked}
    withdrawn = []
    for replica in signals.replicas:
        if replica.phase is Phase.DRAINING:
            draining[replica.role] = draining.get(replica.role, 0) + 1
        elif replica.phase is Phase.UNSCHEDULABLE and now - replica.since > UNSCHEDULABLE_SECONDS:
            withdrawn.append(replica)
        else:
            pools.setdefault(replica.pool, []).append(replica)
    ready: list[Replica] = []
    coming: list[Replica] = []
    lost: list[Replica] = []
    unborn: dict[str, int] = {}
    missing: dict[str, int] = {}
    for pool, members in pools.items():
        members.sort(key=lambda r: _order(r, now, deadline))
        gone = sum(r.pool == pool for r in withdrawn)
        absent = signals.asked.get(pool, len(members) + gone) - gone - len(members)
        if absent > 0:
            late = now - grew.get(pool, now) > deadline
            (missing if late else unborn)[pool] = absent
        for replica in members[max(0, -absent) :]:
            if replica.phase is Phase.READY:
                ready.append(replica)
            else:
                (lost if _is_lost(replica, now, deadline) else coming).append(replica)
    return Census(tuple(ready), tuple(coming), tuple(lost), tuple(withdrawn), draining, unborn, missing)


def _is_lost(replica: Replica, now: float, deadline: float) -> bool:
    return replica.phase is Phase.UNSCHEDULABLE or now - replica.since > deadline


def _order(replica: Replica, now: float, deadline: float) -> tuple[int, float, float, str]:
    """First to go first: without a node, past the deadline, newest starting, least loaded."""
    if replica.phase is Phase.READY:
        return 3, *load_order(replica)
    first = 0 if replica.phase is Phase.UNSCHEDULABLE else 1 if _is_lost(replica, now, deadline) else 2
    return first, -replica.since, 0.0, replica.name

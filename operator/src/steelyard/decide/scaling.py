"""What a decision of the autoscaler is worth telling: the part of a service's status that is about it, and events.

A decision that changes something is told at once, so is a new limit; otherwise the figures are renewed once a minute, so
that a quiet service is not written at every tick. Pure: the time is an argument.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from steelyard.api.reasons import ConditionType, EventReason, Reason
from steelyard.decide.conditions import Verdict
from steelyard.decide.scale import stored
from steelyard.decide.scale.decision import Decision, LimitedBy
from steelyard.decide.scale.signals import Phase, Signals
from steelyard.decide.status import Note

RENEWED_SECONDS = 60.0
HISTORY = 10
BECAUSE = 16
TEXT_LIMIT = 1024
NO_CHANGE = "no change"
LIMITS: Mapping[LimitedBy, tuple[Reason, str]] = {
    LimitedBy.BUDGET: (Reason.BUDGET_REACHED, "the load needs more than spec.autoscaling.budget pays for"),
    LimitedBy.RATIO: (Reason.RATIO_BOUND, "spec.autoscaling.ratio keeps a role from what the load needs"),
    LimitedBy.MAX: (Reason.MAXIMUM_REACHED, "the load needs more replicas than a role's maximum"),
    LimitedBy.UNKNOWN_COST: (
        Reason.COST_UNKNOWN,
        "the price of a replica cannot be read, so nothing grows: see the Accelerator",
    ),
    LimitedBy.UNSCHEDULABLE: (Reason.UNSCHEDULABLE, "the cluster has no room for another replica"),
    LimitedBy.START_FAILING: (Reason.START_FAILING, "new replicas do not start, so no more are made"),
    LimitedBy.METRICS_STALE: (Reason.METRICS_NOT_FRESH, "what the load needs is not known; replicas stay"),
}
Status = Mapping[str, Any]


@dataclass(frozen=True)
class Told:
    """The autoscaler's part of the status (without its conditions), and the events."""

    fields: Mapping[str, Any]
    notes: tuple[Note, ...]


def change_of(decision: Decision, signals: Signals) -> str:
    """Say what the decision changes, such as "prefill 2→3, decode 6→5 (role change)", or that it changes nothing."""
    moves = {pool: number for pool, number in decision.pools.items() if number != signals.asked.get(pool)}
    if not moves and not decision.relabel:
        return NO_CHANGE
    counts, after = _counts(signals), _after(decision, signals)
    parts = [f"{role} {n}→{after[role]}" for role in decision.desired if after[role] != (n := counts.get(role, 0))]
    parts = parts or [f"{pool} pool {signals.asked.get(pool, 0)}→{number}" for pool, number in moves.items()]
    remarks = ["role change"] if decision.relabel else []
    remarks += [f"{len(decision.withdrawn)} withdrawn"] if decision.withdrawn else []
    return ", ".join(parts) + (f" ({', '.join(remarks)})" if remarks else "")


def told(decision: Decision, signals: Signals, before: Status, now: datetime) -> Told:
    """Compute what to write, given the status as it was written last."""
    action = change_of(decision, signals)
    previous, history = before.get("decision") or {}, list(before.get("history") or ())
    fresh = _seconds(previous, now) >= RENEWED_SECONDS
    same = (action, decision.act) == (previous.get("action"), previous.get("applied"))
    new_action = action != NO_CHANGE and (fresh or not same)
    if not (fresh or new_action or previous.get("limitedBy") != decision.limited_by.value):
        return Told({name: before[name] for name in ("decision", "history") if name in before}, ())
    entry = _entry(decision, action, now)
    notes: tuple[Note, ...] = ()
    if new_action:
        history = [entry, *history][:HISTORY]
        reason = EventReason.SCALE_DECIDED if decision.act else EventReason.SCALE_RECOMMENDED
        notes = (Note(reason, f"{action}: {'; '.join(entry['because'])}"),)
        notes += tuple(Note(EventReason.REPLICA_WITHDRAWN, f"{w.pod}: {w.words}", True) for w in decision.withdrawn)
    fields: dict[str, Any] = {"decision": {**entry, "learnt": stored.manifest(decision.memory.learnt)}}
    return Told(fields | ({"history": history} if history else {}), notes)


def limited(decision: Decision) -> Verdict:
    """Does the load need more than the decision may give?

    | limited by | status | reason |
    |---|---|---|
    | budget, ratio, maximum, unknown cost, no room in the cluster, replicas that do not start | True | that |
    | unknown metrics | Unknown | MetricsNotFresh |
    | nothing, or a minimum | False | NotLimited |
    """
    kind = ConditionType.SCALING_LIMITED
    if decision.limited_by not in LIMITS:
        return Verdict(kind, "False", Reason.NOT_LIMITED, "the load gets the replicas that it needs")
    reason, message = LIMITS[decision.limited_by]
    return Verdict(kind, "Unknown" if decision.limited_by is LimitedBy.METRICS_STALE else "True", reason, message)


def _entry(decision: Decision, action: str, now: datetime) -> dict[str, Any]:
    terms = sorted(decision.terms, key=lambda term: term.name != decision.ruled)
    return {
        "time": now.replace(microsecond=0).isoformat().replace("+00:00", "Z"),
        "action": action,
        "because": [term.words[:TEXT_LIMIT] for term in terms[:BECAUSE]],
        "limitedBy": decision.limited_by.value,
        "applied": decision.act,
        **dict(decision.desired),
    }


def _counts(signals: Signals) -> dict[str, int]:
    """Replicas of each role that are there or asked for; those that leave do not count."""
    counts: dict[str, int] = {}
    born: dict[str, int] = {}
    for replica in signals.replicas:
        if replica.phase is not Phase.DRAINING:
            counts[replica.role] = counts.get(replica.role, 0) + 1
            born[replica.pool] = born.get(replica.pool, 0) + 1
    for pool, asked in signals.asked.items():
        counts[pool] = counts.get(pool, 0) + max(0, asked - born.get(pool, 0))
    return counts


def _after(decision: Decision, signals: Signals) -> dict[str, int]:
    """Replicas of each role once the decision is carried out: less than it wants where something limits it."""
    counts = dict.fromkeys(decision.desired, 0) | _counts(signals)
    replicas = {replica.name: replica for replica in signals.replicas}
    grown = {pool: number - signals.asked.get(pool, 0) for pool, number in decision.pools.items()}
    for replica in (replicas[name] for name in decision.remove):
        counts[replica.role] -= 1
        grown[replica.pool] += 1  # the pool's number has fallen by it
    for name, role in decision.relabel:
        if name not in decision.remove:
            counts[replicas[name].role] -= 1
            counts[role] += 1
    return {role: counts[role] + grown.get(role, 0) for role in counts}


def _seconds(previous: Status, now: datetime) -> float:
    """Seconds since a decision was written; endless where there is none that can be read."""
    try:
        return (now - datetime.fromisoformat(previous["time"])).total_seconds()
    except (KeyError, TypeError, ValueError):
        return float("inf")

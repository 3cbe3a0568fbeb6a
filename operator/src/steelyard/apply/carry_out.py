"""Carry out one decision of the autoscaler: roles first, then who shall go, then the numbers.

In this order a scale-down takes the replicas that were chosen: the ReplicaSet controller takes the ones of lowest deletion
cost. A step that fails is decided anew at the next tick; a pool whose chosen pods could not be marked is not shrunk.

A LeaderWorkerSet looks at no cost: it takes the replica of the highest number. So a grouped pool is shrunk only as far as
that loses no more replicas that serve than were chosen of those: one idle replica goes for another, but none that serves goes
in the place of one that could not start.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from steelyard.api import names
from steelyard.apply.roles import mark, relabel
from steelyard.apply.scale import scale
from steelyard.decide.scale.decision import Decision
from steelyard.decide.scale.signals import Phase, Replica
from steelyard.observe.client import Api
from steelyard.observe.replicas import Engine

FIRST_COST = -1000  # of the pod that goes first; pods without the annotation count 0


@dataclass(frozen=True)
class Carried:
    """What was done: pods with a new role, and pools with a new number."""

    relabelled: tuple[str, ...] = ()
    scaled: tuple[str, ...] = ()


def carry_out(
    api: Api,
    namespace: str,
    service: str,
    engines: Iterable[Engine],
    asked: Mapping[str, int],
    decision: Decision,
    grouped: Collection[str] = (),
) -> Carried:
    """Do what differs from what is there; raises `ApiError` in the middle when the API server fails. `grouped` are the pools
    that are LeaderWorkerSets."""
    if not decision.act:
        return Carried()
    known = {engine.replica.name: engine for engine in engines}
    relabelled = tuple(
        pod for pod, role in decision.relabel if pod in known and relabel(api, namespace, pod, known[pod].uid, role)
    )
    shrinking = {pool for pool, number in decision.pools.items() if number < asked.get(pool, 0)}
    unmarked = _mark(api, namespace, known, decision.remove, shrinking - set(grouped))
    scaled = []
    for pool, wanted in decision.pools.items():
        mine = [engine.replica for engine in known.values() if engine.replica.pool == pool]
        number = reach(mine, decision.remove, asked.get(pool, 0), wanted) if pool in grouped else wanted
        if number != asked.get(pool) and pool not in unmarked:
            scale(api, namespace, names.engines(service, pool), number, pool in grouped)
            scaled.append(f"{pool} {asked.get(pool, 0)}→{number}")
    return Carried(relabelled, tuple(scaled))


def reach(replicas: Iterable[Replica], chosen: Collection[str], asked: int, wanted: int) -> int:
    """The number to which a LeaderWorkerSet that asks for `asked` may be brought on its way to `wanted`, by the rule above;
    `replicas` are its leaders, whose names end in their numbers."""
    there = {replica.name.rpartition("-")[2]: replica for replica in replicas if replica.phase is not Phase.DRAINING}
    exchanged = sum(replica.phase is Phase.READY and replica.name in chosen for replica in there.values())
    for place in range(asked - 1, wanted - 1, -1):
        last = there.get(str(place))
        if last is None or (last.name in chosen and last.phase is not Phase.READY):
            continue
        if exchanged == 0:
            return place + 1
        exchanged -= 1
    return wanted


def _mark(
    api: Api, namespace: str, known: Mapping[str, Engine], remove: tuple[str, ...], shrinking: set[str]
) -> set[str]:
    """Mark those that go, and take the marks of earlier decisions off the others of their pools.

    Gives the pools of which a chosen pod is not there any more: their numbers were computed with it.
    """
    lost = set()
    chosen = {pod: place for place, pod in enumerate(remove)}
    for name, engine in known.items():
        if engine.replica.pool not in shrinking:
            continue
        if name in chosen:
            if not mark(api, namespace, name, engine.uid, FIRST_COST + chosen[name]):
                lost.add(engine.replica.pool)
        elif engine.marked:
            mark(api, namespace, name, engine.uid, None)
    return lost

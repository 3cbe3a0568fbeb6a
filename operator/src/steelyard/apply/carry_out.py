"""Carry out one decision of the autoscaler: roles first, then who shall go, then the numbers.

In this order a scale-down takes the replicas that were chosen: the ReplicaSet controller takes the ones of lowest deletion
cost. A step that fails is decided anew at the next tick; a pool whose chosen pods could not be marked is not shrunk.

A LeaderWorkerSet looks at no cost, so its pods are not marked; how far it may shrink was decided (`decide/grouped.py`).
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from steelyard.api import names
from steelyard.apply.roles import mark, relabel
from steelyard.apply.scale import scale
from steelyard.decide.scale.decision import Decision
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
    for pool, number in decision.pools.items():
        if number != asked.get(pool) and pool not in unmarked:
            scale(api, namespace, names.engines(service, pool), number, pool in grouped)
            scaled.append(f"{pool} {asked.get(pool, 0)}→{number}")
    return Carried(relabelled, tuple(scaled))


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

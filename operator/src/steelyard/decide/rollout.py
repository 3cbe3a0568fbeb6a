"""Replacing the engines of all roles together: which pods of an earlier spec may go now, so that what stays can serve.

A Deployment replaces its pods by itself as fast as its own new ones get ready, and knows nothing of the other role. Where old
and new engines cannot exchange KV, a prefill pool that is done while decode has just begun serves nobody. So the steps are
taken here, and each Deployment may only do what its step says (`build/pacing.py`). An operator that is gone takes no steps:
what serves goes on serving.

What the ready pods can serve, as a share of what is wanted, is the sum over kv-groups of the least share that a role has:

    served = Σ_groups min_roles ready(role, group) / replicas(role)

An old pod that is ready may go when all of this holds:

1. its pool keeps replicas − maxUnavailable ready pods;
2. `served` stays at or above 1 − maxUnavailable / replicas, of the role that allows most: so the roles move in ratio;
3. a new pod of its pool is ready, so the image starts and the weights load, unless there is no room for one beside the old
   ones: maxSurge is 0, or no node takes it.

Of those that may go, the one goes after whose departure most is served; which of a pool's old pods it is, is the Deployment's
choice, so the worse is counted. Where that lets nobody go though nothing is on its way, the better is. Old pods that are not
ready go at once: nothing is lost with them, and where there is no room beside them nothing new could start.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import inf

from steelyard.api.labels import POOL, REVISION
from steelyard.api.reasons import Reason
from steelyard.decide.replicas import CREATED_WITH
from steelyard.decide.snapshot import Body, Pod, Snapshot

WHOLE = 100  # percent
Kind = tuple[str, str]  # kv-group and role of a pod


@dataclass(frozen=True)
class Member:
    """One pod of a pool that is not leaving."""

    role: str
    group: str  # its kv-group
    new: bool  # of the revision that is wanted
    ready: bool
    placed: bool = True  # a node takes it


@dataclass(frozen=True)
class Pool:
    """One pool: what is wanted of it, how far it may deviate meanwhile, and its pods."""

    replicas: int
    surge: int
    unavailable: int
    members: tuple[Member, ...]

    @property
    def fresh(self) -> int:
        """New pods that are ready."""
        return sum(member.new and member.ready for member in self.members)

    @property
    def complete(self) -> bool:
        """Whether nothing is on its way: every pod is ready, and there are as many as there may be."""
        full = not self.rolling or len(self.members) >= self.replicas + self.surge
        return full and all(member.ready for member in self.members)

    @property
    def crowded(self) -> bool:
        """Whether a new pod finds no room beside the old ones."""
        return self.surge == 0 or any(member.new and not member.placed for member in self.members)

    @property
    def rolling(self) -> bool:
        """Whether any pod is to be replaced."""
        return any(not member.new for member in self.members)


@dataclass(frozen=True)
class Step:
    """What a pool's Deployment may do until the next look."""

    surge: int  # pods beyond its replicas
    unavailable: int  # of its replicas, those that need not be old pods any more
    held: bool = False  # nothing at all


@dataclass(frozen=True)
class Rollout:
    """A replacement that is under way: a step for each pool that has old pods, and how far every pool is."""

    steps: Mapping[str, Step]
    pools: Mapping[str, Pool]
    revisions: Mapping[str, str]  # pool → the revision that is wanted

    def __str__(self) -> str:
        return ", ".join(f"{name} {done}" for name, done in self.done.items())

    @property
    def done(self) -> dict[str, str]:
        """By pool, new ready pods of the wanted ones, such as "1/4"."""
        return {name: f"{min(pool.fresh, pool.replicas)}/{pool.replicas}" for name, pool in self.pools.items()}


def rollout(
    snapshot: Snapshot, children: Iterable[Body], seasoned: float = inf, begins: bool = False
) -> Rollout | None:
    """See whether pods are to be replaced by those of `children`, and decide the next step; None where none are.

    A new pod counts as ready if it has been that since `seasoned` (unix seconds) or longer. Where it only `begins`, or a
    Deployment has not seen its latest step, nobody goes: what an earlier step still takes away is not known yet.
    """
    pools: dict[str, Pool] = {}
    revisions: dict[str, str] = {}
    for body in children:
        name = body["metadata"]["labels"].get(POOL)
        if body["kind"] != "Deployment" or name is None:
            continue
        revisions[name] = body["spec"]["template"]["metadata"]["labels"][REVISION]
        live = snapshot.deployment_of(name)
        bounds = body["spec"]["strategy"]["rollingUpdate"]
        replicas = live.replicas if live is not None else CREATED_WITH
        pods = (pod for pod in snapshot.pods if pod.pool == name and not pod.terminating)
        pools[name] = Pool(
            replicas,
            *allowed(bounds["maxSurge"], bounds["maxUnavailable"], replicas),
            tuple(_member(pod, revisions[name], seasoned) for pod in pods),
        )
    observed = all(live.observed for name in pools if (live := snapshot.deployment_of(name)) is not None)
    taken = steps(pools, nobody_goes=begins or not observed)
    return Rollout(taken, pools, revisions) if taken else None


def allowed(surge: int | str, unavailable: int | str, replicas: int) -> tuple[int, int]:
    """Count maxSurge and maxUnavailable of a number of replicas, as a Deployment does: percentages of surge are rounded up,
    the others down, and where both come to nothing one replica may be missing."""
    beyond, missing = _count(surge, replicas, up=True), min(_count(unavailable, replicas, up=False), replicas)
    return (beyond, missing) if beyond or missing else (0, 1)


def steps(pools: Mapping[str, Pool], nobody_goes: bool = False) -> dict[str, Step]:
    """Decide the step of every pool that has old pods, by the rules above; with `nobody_goes` all that are ready stay."""
    if not any(pool.rolling for pool in pools.values()):
        return {}
    sizes = {name: max(1, pool.replicas) for name, pool in pools.items()}
    floor = 1 - max(Fraction(pool.unavailable, sizes[name]) for name, pool in pools.items())
    ready = Counter((m.group, m.role) for pool in pools.values() for m in pool.members if m.ready)
    kept = {
        name: Counter((m.group, m.role) for m in pool.members if m.ready and not m.new) for name, pool in pools.items()
    }
    if nobody_goes:
        return {name: _standstill(pool) for name, pool in pools.items() if pool.rolling}
    whole = {name: kinds.total() for name, kinds in kept.items()}
    while found := _who_may_go(pools, kept, ready, sizes, floor, worst=True):
        _, _, name, kind = max(found)
        ready[kind] -= 1
        kept[name][kind] -= 1
    if whole == {name: kinds.total() for name, kinds in kept.items()} and all(pool.complete for pool in pools.values()):
        for _, _, name, kind in sorted(_who_may_go(pools, kept, ready, sizes, Fraction(0), worst=False))[-1:]:
            kept[name][kind] -= 1
    return {name: _step(pool, kept[name].total()) for name, pool in pools.items() if pool.rolling}


def _who_may_go(
    pools: Mapping[str, Pool],
    kept: Mapping[str, Counter[Kind]],
    ready: Mapping[Kind, int],
    sizes: Mapping[str, int],
    floor: Fraction,
    worst: bool,
) -> list[tuple[Fraction, Fraction, str, Kind]]:
    """What would be served without one old pod of a pool, what share of the pool is old, the pool, and the pod's kind."""
    found = []
    for name, pool in pools.items():
        if _may_lose_one(pool, kept[name].total()):
            afters = sorted((_without(ready, kind, sizes), kind) for kind in +kept[name])
            after, kind = afters[0 if worst else -1]
            if after >= floor:
                found.append((after, Fraction(kept[name].total(), sizes[name]), name, kind))
    return found


def served(ready: Mapping[Kind, int], sizes: Mapping[str, int]) -> Fraction:
    """The share of what is wanted that ready pods can serve: pairs form within a kv-group only."""
    groups = {group for group, _ in ready}
    return sum(
        (min(Fraction(ready.get((group, role), 0), size) for role, size in sizes.items()) for group in groups),
        Fraction(0),
    )


def _may_lose_one(pool: Pool, kept: int) -> bool:
    tried = pool.fresh > 0 or pool.crowded
    return kept > 0 and tried and pool.fresh + kept - 1 >= pool.replicas - pool.unavailable


def _without(ready: Mapping[Kind, int], kind: Kind, sizes: Mapping[str, int]) -> Fraction:
    return served({**ready, kind: ready[kind] - 1}, sizes)


def _standstill(pool: Pool) -> Step:
    """The step by which only old pods go that are not ready.

    Where an earlier spec comes back, its pods are the new ones, and its ReplicaSet counts them as available until it has
    heard that it should not: as many old ones more would go. So they are reckoned as available here.
    """
    idle = sum(not member.new and not member.ready for member in pool.members)
    return _step(pool, len(pool.members) - idle)


def _step(pool: Pool, kept: int) -> Step:
    unavailable = min(max(0, pool.replicas - kept), pool.replicas)
    return Step(pool.surge, unavailable, held=pool.surge == unavailable == 0)


def _member(pod: Pod, revision: str, seasoned: float) -> Member:
    new = pod.revision == revision
    ready = pod.ready and (not new or pod.ready_since is None or pod.ready_since <= seasoned)
    placed = pod.trouble is None or pod.trouble.reason is not Reason.UNSCHEDULABLE
    return Member(pod.role, pod.kv_group, new, ready, placed)


def _count(share: int | str, replicas: int, up: bool) -> int:
    if isinstance(share, int):
        return share
    parts = int(share.rstrip("%")) * replicas
    return -(-parts // WHOLE) if up else parts // WHOLE

"""What of a decision a LeaderWorkerSet can carry out: it takes away the replica of the highest number, whichever was chosen.

So a grouped pool is shrunk only as far as that loses no more replicas that serve than were chosen of those: one idle replica
goes for another, but none that serves goes in the place of one that could not start. Such a one stays asked for, and the
decision says so: told as withdrawn, it would be withdrawn again at every tick.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from steelyard.decide.scale.decision import Decision, Term
from steelyard.decide.scale.signals import Phase, Replica


def reachable(
    decision: Decision, replicas: Iterable[Replica], asked: Mapping[str, int], grouped: Collection[str]
) -> Decision:
    """Bring the numbers of `grouped` pools to what can be reached now; what is given up only on paper is left out.

    `replicas` are leaders, whose names end in their numbers; `asked` is what each pool asks for.
    """
    pools, stays, terms = dict(decision.pools), set[str](), list(decision.terms)
    there = list(replicas)
    for pool in sorted(set(grouped) & pools.keys()):
        wanted, now = pools[pool], asked.get(pool, 0)
        mine = [replica for replica in there if replica.pool == pool]
        number = pools[pool] = reach(mine, decision.remove, now, wanted)
        if number <= wanted:
            continue
        kept = [
            replica.name
            for replica in mine
            if replica.name in decision.remove and _place(replica.name) < number and replica.phase is not Phase.READY
        ]  # a ready one that was chosen goes, if only by its number: another went in its place
        if not kept:
            continue
        stays |= set(kept)
        far = f"goes to {number} only" if number < now else f"stays at {number}"
        words = f"{pool} {far}: its set takes the highest number first, so {', '.join(kept)} cannot go alone"
        terms.append(Term("grouped", number, words))
    remove = tuple(name for name in decision.remove if name not in stays)
    withdrawn = tuple(one for one in decision.withdrawn if one.pod not in stays)
    return replace(decision, pools=pools, remove=remove, withdrawn=withdrawn, terms=tuple(terms))


def reach(replicas: Iterable[Replica], chosen: Collection[str], asked: int, wanted: int) -> int:
    """The number to which a LeaderWorkerSet that asks for `asked` may be brought on its way to `wanted`, by the rule above."""
    there = {_place(replica.name): replica for replica in replicas if replica.phase is not Phase.DRAINING}
    exchanged = sum(replica.phase is Phase.READY and replica.name in chosen for replica in there.values())
    for place in range(asked - 1, wanted - 1, -1):
        last = there.get(place)
        if last is None or (last.name in chosen and last.phase is not Phase.READY):
            continue
        if exchanged == 0:
            return place + 1
        exchanged -= 1
    return wanted


def _place(name: str) -> int:
    """A leader's number in its set."""
    number = name.rpartition("-")[2]
    return int(number) if number.isdecimal() else -1

"""From wanted sizes to steps: who changes role, who goes, and what each pool's Deployment shall ask for."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from steelyard.api.labels import DECODE, PREFILL
from steelyard.decide.scale.census import Census, load_order
from steelyard.decide.scale.decision import Conversion, Decision, Memory
from steelyard.decide.scale.signals import Replica


@dataclass(frozen=True, slots=True)
class Removal:
    """Replicas to go: named ones first first, and those that were asked for and never made, by pool."""

    pods: tuple[Replica, ...]
    unmade: Mapping[str, int]


def relabels(census: Census, decode: int, conversions: Mapping[str, Conversion]) -> tuple[tuple[str, str], ...]:
    """Bring the ready replicas to that many decoding ones. Those that were on their way out of decode go back first:
    their sequences are still there. Otherwise the least loaded change, and one of each role always stays."""
    prefilling, decoding = census.ready_of(PREFILL), census.ready_of(DECODE)
    missing = decode - len(decoding)
    if missing > 0:
        back = [r for r in prefilling if r.name in conversions]
        back.sort(key=lambda r: (-(r.running or 0.0), r.name))
        rest = sorted((r for r in prefilling if r.name not in conversions), key=_prefill_order)
        return tuple((r.name, DECODE) for r in [*back, *rest][: min(missing, len(prefilling) - 1)])
    spare = sorted(decoding, key=lambda r: (load_order(r)[0], r.kv_use or 0.0, r.name))
    return tuple((r.name, PREFILL) for r in spare[: min(-missing, len(decoding) - 1)])


def removals(census: Census, roles: Iterable[str], surplus: int, keep_ready: Mapping[str, int]) -> Removal:
    """Choose `surplus` replicas of those roles to give up: those that do not come, those that were never made, the newest
    starting, then the least loaded ready ones, roles in the order given and not below `keep_ready` of each."""
    chosen: list[Replica] = []
    unmade: dict[str, int] = {}
    order = tuple(roles)
    chosen += [r for r in census.lost if r.role in order][:surplus]
    left = surplus - len(chosen)
    for absent in (census.missing, census.unborn):
        for pool in order:
            taken = min(left, absent.get(pool, 0))
            if taken > 0:
                unmade[pool] = unmade.get(pool, 0) + taken
                left -= taken
    starting = sorted((r for r in census.coming if r.role in order), key=lambda r: (-r.since, r.name))
    chosen += starting[:left]
    left -= len(starting[:left])
    for role in order:
        ready = sorted(census.ready_of(role), key=load_order)
        taken = max(0, min(left, len(ready) - keep_ready.get(role, 0)))
        chosen += ready[:taken]
        left -= taken
    return Removal(tuple(chosen), unmade)


def pools(
    asked: Mapping[str, int], withdrawn: Iterable[Replica], removal: Removal, growth: Mapping[str, int]
) -> dict[str, int]:
    """Compute what each Deployment shall ask for: what it asks for now, less those that go, plus the new ones."""
    numbers = dict(asked)
    for replica in (*withdrawn, *removal.pods):
        numbers[replica.pool] = numbers.get(replica.pool, 0) - 1
    for pool, number in removal.unmade.items():
        numbers[pool] -= number
    for pool, number in growth.items():
        numbers[pool] = numbers.get(pool, 0) + number
    return {pool: max(0, number) for pool, number in numbers.items()}


def growing_only(decision: Decision, asked: Mapping[str, int], before: Memory) -> Decision:
    """Leave of a decision what only adds. While pods are being replaced nobody is taken away and roles stay: a pod that finds no
    room may be one beyond what is wanted, and what a Deployment takes when it shrinks would not be the pods that were chosen.

    What is held back is not remembered either, but as it was `before` the decision: a role change that was never asked for
    would soon count as one that failed, and stop all role changes for minutes, and a replica that was not given up says
    nothing of the time after it has found its node.
    """
    pools = {pool: max(number, asked.get(pool, number)) for pool, number in decision.pools.items()}
    kept = {**decision.memory.conversions}
    for name, _ in decision.relabel:
        kept.pop(name, None)
        kept |= {name: before.conversions[name]} if name in before.conversions else {}
    memory = replace(decision.memory, conversions=kept, scarce_until=before.scarce_until)
    return replace(decision, pools=pools, relabel=(), remove=(), withdrawn=(), memory=memory)


def _prefill_order(replica: Replica) -> tuple[float, float, str]:
    work, tokens, name = load_order(replica)
    return (tokens if replica.outstanding_tokens is not None else work), work, name

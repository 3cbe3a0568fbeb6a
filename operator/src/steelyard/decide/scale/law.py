"""The autoscaler's law: signals in, decision out, no I/O, no clock, no randomness.

Ordered guards, the first that holds decides:

1. Metrics stale, or what decode or prefill needs is unknown → hold: sizes stay within the limits, roles stay.
2. One role does both kinds of work → size the sum.
3. Replicas can change roles (allowed, one kv-group, enough of them) → split what is ready, then size the sum.
4. Else → size each role by itself.

Whatever was decided: a partly unknown picture never shrinks anything; limits rule; replicas without a node are
withdrawn; a pool whose replicas cannot start does not grow.
"""

from collections.abc import Mapping
from dataclasses import replace

from steelyard.api.labels import DECODE, PREFILL
from steelyard.decide.scale import bounds, changes, sizing, steps
from steelyard.decide.scale.census import Census
from steelyard.decide.scale.decision import Conversion, Decision, LimitedBy, Memory, Withdrawal
from steelyard.decide.scale.scene import Scene, scene
from steelyard.decide.scale.signals import Replica, Service, Signals
from steelyard.decide.scale.sizing import Sized


def decide(service: Service, signals: Signals, memory: Memory) -> Decision:
    """Decide one tick of one service. `memory` is what the last decision handed back, or a fresh one."""
    seen = scene(service, signals, memory)
    if seen.decode is None or seen.prefill is None:
        return carry_out(seen, sizing.hold(seen))
    if seen.single:
        return carry_out(seen, sizing.total(seen, seen.decode, seen.prefill))
    by_role = sizing.by_role(seen, seen.decode, seen.prefill)
    if _roles_may_change(seen, by_role):
        return carry_out(seen, sizing.split_and_total(seen, seen.decode, seen.prefill, by_role))
    return carry_out(seen, by_role)


def _roles_may_change(seen: Scene, by_role: Sized) -> bool:
    """Role changes are worth it from a certain size on; that size is the need's, so that shrinking to less by them does
    not end them."""
    return (
        seen.service.limits.role_change
        and changes.interchangeable(seen.census)
        and sum(by_role.needed.values()) >= changes.LEAST_REPLICAS
    )


def carry_out(seen: Scene, sized: Sized) -> Decision:
    """Turn sizes into steps."""
    signals, limits, census = seen.signals, seen.service.limits, seen.census
    flips = steps.relabels(census, sized.decoding, seen.memory.conversions) if sized.decoding is not None else ()
    if flips and signals.time < seen.memory.no_role_change_until:
        flips = ()
    surplus, growth, limited = _balance(seen, sized)
    removal = _removal(seen, sized, surplus, census.relabelled(flips))
    scarce = dict(seen.memory.scarce_until)
    for replica in census.withdrawn:
        scarce[replica.pool] = signals.time + changes.PAUSE_SECONDS
    act = limits.mode == "Auto"
    return Decision(
        desired=sized.sizes,
        pools=steps.pools(signals.asked, census.withdrawn, removal, growth),
        relabel=flips,
        remove=tuple(r.name for r in (*census.withdrawn, *removal.pods)),
        withdrawn=tuple(Withdrawal(r.name, r.words) for r in census.withdrawn),
        terms=sized.terms,
        ruled=sized.ruled,
        limited_by=limited or sized.limited_by,
        act=act,
        slots=seen.writes.admitted(seen.decode.context) if seen.decode is not None and not seen.single else None,
        memory=replace(
            seen.memory,
            needs=sized.needs,
            conversions=_begun(seen, flips) if act else {},
            scarce_until={pool: until for pool, until in scarce.items() if until > signals.time},
            grew={**seen.memory.grew, **dict.fromkeys(growth, signals.time)},
        ),
    )


def _balance(seen: Scene, sized: Sized) -> tuple[dict[str, int], dict[str, int], LimitedBy | None]:
    """Compare what is wanted with what is there: (surplus, growth, what kept it from growing), by role, or by the pool
    that grows. Interchangeable replicas are balanced as a sum: new ones begin as prefill, which drains in one pass."""
    census = seen.census
    surplus: dict[str, int] = {}
    growth: dict[str, int] = {}
    limited: LimitedBy | None = None
    groups = [(PREFILL, DECODE)] if sized.decoding is not None else [(role,) for role in seen.roles]
    for group in groups:
        wanted = sum(sized.sizes[role] for role in group)
        held = sum(census.held(role) for role in group)
        have = held if sized.holding else sum(census.have(role) for role in group)
        if wanted <= have:
            surplus[group[0]] = held - wanted
            continue
        pool = group[0]
        reason = changes.blocked(pool, census, seen.signals, seen.memory.scarce_until)
        if reason is not None:
            limited = reason
            continue
        room = _room(seen, pool, growth)
        more = min(wanted - have, room)
        if more > 0:
            growth[pool] = more
        if more < wanted - have:
            limited = LimitedBy.BUDGET
    return surplus, growth, limited


def _room(seen: Scene, role: str, growth: Mapping[str, int]) -> int:
    """How many more replicas of a role the budget pays for while those that drain, or never came, still hold theirs."""
    limits, census = seen.service.limits, seen.census
    taken = {r: census.held(r) + census.draining.get(r, 0) + growth.get(r, 0) for r in seen.roles}
    low, high = 0, sum(bound.max for bound in limits.roles.values())
    while low < high:
        middle = (low + high + 1) // 2
        if bounds.affordable({**taken, role: taken[role] + middle}, limits):
            low = middle
        else:
            high = middle - 1
    return min(low, max(0, limits.roles[role].min - census.have(role))) if bounds.unknown_cost(limits) else low


def _removal(seen: Scene, sized: Sized, surplus: Mapping[str, int], census: Census) -> steps.Removal:
    """Choose who goes. Of a sum prefill goes first, and both roles keep what the split gave them."""
    pods: tuple[Replica, ...] = ()
    unmade: dict[str, int] = {}
    for role, number in surplus.items():
        if number <= 0:
            continue
        roles = (PREFILL, DECODE) if sized.decoding is not None else (role,)
        keep = {r: min(sized.sizes[r], len(census.ready_of(r))) for r in roles} if sized.decoding is not None else {}
        part = steps.removals(census, roles, number, keep)
        pods += part.pods
        unmade = {pool: unmade.get(pool, 0) + part.unmade.get(pool, 0) for pool in {*unmade, *part.unmade}}
    return steps.Removal(pods, unmade)


def _begun(seen: Scene, flips: tuple[tuple[str, str], ...]) -> dict[str, Conversion]:
    """Remember the role changes asked for now; one asked for again keeps its first time."""
    pending = dict(seen.memory.conversions)
    for name, target in flips:
        before = pending.get(name)
        if before is None or before.target != target:
            pending[name] = Conversion(DECODE if target == PREFILL else PREFILL, target, seen.signals.time)
    return pending

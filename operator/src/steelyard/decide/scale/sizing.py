"""How many replicas, in each of the four situations of `law.py`; every answer comes with its terms."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil

from steelyard.api.labels import AGGREGATED, DECODE, PREFILL
from steelyard.decide.scale import bounds
from steelyard.decide.scale.decision import LimitedBy, Term
from steelyard.decide.scale.demand import Decode
from steelyard.decide.scale.prefill import Prefill, replicas
from steelyard.decide.scale.scene import SUM, Scene
from steelyard.decide.scale.split import FILL, decode_share
from steelyard.decide.scale.windows import Kept, further, most, stood_still

MOST_REPLICAS = 100_000  # where nothing limits: far above anything real


@dataclass(frozen=True, slots=True)
class Sized:
    """Wanted sizes by role, and how they came about."""

    sizes: dict[str, int]  # within the limits
    needed: dict[str, int]  # before them
    decoding: int | None  # how many of the ready replicas shall decode; None: roles stay
    terms: tuple[Term, ...]
    ruled: str
    limited_by: LimitedBy
    needs: Mapping[str, Kept]
    holding: bool = False  # the sizes are of all that is paid for, not of what works: nothing is made up for


def hold(seen: Scene) -> Sized:
    """Keep what is there, within the limits. The windows stand still, so that nothing shrinks at once afterwards."""
    have = seen.have
    held = {role: seen.census.held(role) for role in seen.roles}
    fitted = bounds.fit(held, held, seen.service.limits, lambda role, size: 0.0)
    words = _unknown(seen)
    return Sized(
        sizes=fitted.sizes,
        needed=dict(have),
        decoding=None,
        terms=(Term("hold", sum(held.values()), words),),
        ruled="hold",
        limited_by=LimitedBy.METRICS_STALE,
        needs={name: stood_still(kept, seen.signals.time) for name, kept in seen.memory.needs.items()},
        holding=True,
    )


def total(seen: Scene, decode: Decode, prefill: Prefill) -> Sized:
    """Size one pool whose replicas do both kinds of work, and share their time between them."""
    shared = decode.total / FILL
    least = seen.service.limits.roles[AGGREGATED].min
    terms, needed = _terms_of_sum(seen, decode, prefill, shared, least)
    kept = _kept(seen, {AGGREGATED: needed})
    wanted = {AGGREGATED: _wanted(seen, kept, AGGREGATED)}
    fitted = bounds.fit(wanted, seen.have, seen.service.limits, lambda role, size: 0.0)
    return _told(seen, fitted, wanted, None, terms, needed, {**seen.memory.needs, **kept})


def by_role(seen: Scene, decode: Decode, prefill: Prefill) -> Sized:
    """Size each role by itself."""
    limits = seen.service.limits
    alone = replace(prefill, arrived=prefill.arrived.without_decode())
    largest = max(limits.roles[PREFILL].max, limits.roles[PREFILL].min)
    burst = alone.burst((1, largest), seen.last_need(PREFILL), seen.kept(PREFILL))
    steady = replicas(prefill.steady)
    least = 1 if limits.standby else 0  # whoever stands by does so beside one that works
    writes = max(least, replicas(decode.total / FILL))
    kept = _kept(seen, {PREFILL: max(burst, steady), DECODE: writes})
    wanted = {role: _wanted(seen, kept, role) for role in (PREFILL, DECODE)}
    queued = seen.signals.prefill_queue_tokens or 0.0

    def pain(role: str, size: int) -> float:
        return prefill.missed(size, queued) if role == PREFILL else max(0.0, 1 - size / max(decode.total, 1e-9))

    fitted = bounds.fit(wanted, seen.have, limits, pain)
    terms = (_burst(seen, prefill, burst, 0.0), _steady(prefill, steady), _decode(decode, writes))
    return _told(seen, fitted, wanted, None, terms, max(burst, steady) + writes, {**seen.memory.needs, **kept})


def split_and_total(seen: Scene, decode: Decode, prefill: Prefill, roles: Sized) -> Sized:
    """Layer 1, the split of what is ready, then layer 2, the size of the sum. `roles` sized each role by itself: its
    windows go on, so that it is ready to take over."""
    limits, census = seen.service.limits, seen.census
    ready, decoding = len(census.ready), len(census.ready_of(DECODE))
    target: int | None = None
    queued = seen.signals.prefill_queue_tokens or 0.0
    if ready >= 2:
        target = decode_share(
            decode.now,
            decoding,
            ready,
            bounds.decode_range(ready, limits),
            lambda left: prefill.missed(left, queued) <= prefill.allowed,
        )
        if decode.partial:
            target = max(target, decoding)
    writes = max(limits.roles[DECODE].min, replicas(decode.total / FILL))
    terms, needed = _terms_of_sum(seen, decode, prefill, writes, sum(b.min for b in limits.roles.values()))
    kept = _kept(seen, {SUM: needed})
    wanted = _wanted(seen, kept, SUM)
    largest = bounds.most_in_all(limits, MOST_REPLICAS)
    if bounds.unknown_cost(limits):
        largest = min(largest, max(sum(seen.have.values()), sum(b.min for b in limits.roles.values())))
    size = min(wanted, largest)
    while size > sum(b.min for b in limits.roles.values()) and not bounds.ratio_possible(size, limits):
        size -= 1
    low, high = bounds.decode_range(size, limits)
    share = min(max(target if target is not None else seen.have[DECODE], low), high)
    if target is not None:
        target = max(1, min(target, ready - 1))
    sizes = {PREFILL: size - share, DECODE: share}
    limited = _limit_of_sum(seen, wanted, size, largest)
    result = bounds.Fitted(sizes, limited)
    return _told(seen, result, sizes, target, terms, needed, {**roles.needs, **kept})


def _terms_of_sum(
    seen: Scene, decode: Decode, prefill: Prefill, writes: float, least: int
) -> tuple[tuple[Term, ...], int]:
    """What the sum must be: bursts with what decode leaves, the steady rate beside decode, the minima."""
    largest = bounds.most_in_all(seen.service.limits, MOST_REPLICAS)
    name = AGGREGATED if seen.single else SUM
    burst = prefill.burst((max(1, least), largest), seen.last_need(name), seen.kept(name))
    steady = replicas(prefill.steady + writes)
    terms = (
        _burst(seen, prefill, burst, writes),
        _steady(prefill, steady),
        _decode(decode, replicas(writes)),
        Term("minimum", least, f"the minima ask for {least}"),
    )
    return terms, max(burst, steady, least)


def _limit_of_sum(seen: Scene, wanted: int, size: int, largest: int) -> LimitedBy:
    limits = seen.service.limits
    if size >= wanted:
        return LimitedBy.NONE
    if size < largest:
        return LimitedBy.RATIO
    if bounds.unknown_cost(limits):
        return LimitedBy.UNKNOWN_COST
    return LimitedBy.MAX if size == sum(b.max for b in limits.roles.values()) else LimitedBy.BUDGET


def _kept(seen: Scene, needs: Mapping[str, int]) -> dict[str, Kept]:
    """Add the present needs to their windows. While part of the picture is unknown they stand still: what was needed before is
    not forgotten, and one replica that misses a scrape does not begin the wait anew."""
    now = seen.signals.time
    before = {name: seen.memory.needs.get(name, Kept()) for name in needs}
    if not seen.whole:
        before = {name: stood_still(kept, now) for name, kept in before.items()}
    return {name: further(before[name], now, need, seen.spans) for name, need in needs.items()}


def _wanted(seen: Scene, kept: Mapping[str, Kept], name: str) -> int:
    """The most of a window and what stands by; while part of the picture is unknown nothing that is there is given up either."""
    number = most(kept[name], seen.signals.time, seen.spans) + _standby(seen, (name,) if name else seen.roles)
    if seen.whole:
        return number
    return max(number, seen.have[name] if name else sum(seen.have.values()))


def _standby(seen: Scene, roles: tuple[str, ...]) -> int:
    """Replicas to have beyond what is needed, of these roles together."""
    return seen.service.limits.standby * len(roles)


def _told(
    seen: Scene,
    fitted: bounds.Fitted,
    wanted: dict[str, int],
    decoding: int | None,
    terms: tuple[Term, ...],
    needed: int,
    needs: Mapping[str, Kept],
) -> Sized:
    """Say which term ruled: the largest, or the window where it holds more than is needed now."""
    ruling = max(terms, key=lambda term: ceil(term.replicas))
    spare = _standby(seen, seen.roles)
    kept = sum(wanted.values()) - spare
    if kept > needed:
        words = f"{kept} were needed within the last {_span(seen, needs):.0f} s, {needed} are now"
        if not seen.whole:
            words = f"{kept} stay while part of the picture is unknown; {needed} are needed by what is known"
        ruling = Term("kept", kept, words)
        terms = (*terms, ruling)
    if spare:
        terms = (*terms, Term("standby", spare, f"{spare} are to stand by beyond the need (spec.autoscaling.standby)"))
    limited = fitted.limited_by
    if limited is LimitedBy.NONE and not seen.whole and kept > needed:
        limited = LimitedBy.METRICS_STALE
    return Sized(fitted.sizes, wanted, decoding, terms, ruling.name, limited, needs)


def _span(seen: Scene, needs: Mapping[str, Kept]) -> float:
    """For how long what is kept now is kept at most."""
    return max((seen.spans.of(kept) for kept in needs.values()), default=seen.spans.brief)


def _burst(seen: Scene, prefill: Prefill, number: int, writes: float) -> Term:
    left = f" beside {writes:.3g} for decode" if writes else ""
    words = f"{number} lose at most {prefill.allowed:.1%} of the last arrivals at {prefill.velocity:.0f} tokens/s each{left}"
    return Term("burst", number, words)


def _steady(prefill: Prefill, number: int) -> Term:
    return Term("rate", number, f"{prefill.rate:.0f} uncached tokens/s need {prefill.steady:.2f} prefill replicas")


def _decode(decode: Decode, number: int) -> Term:
    words = f"decode fills {decode.total:.2f} replicas at {decode.held} sequences of {decode.context:.0f} tokens each"
    return Term("decode", number, words)


def _unknown(seen: Scene) -> str:
    if not seen.fresh:
        age = seen.signals.sample_age
        return "no metrics at all" if age is None else f"the newest sample is {age:.0f} s old"
    if seen.decode is None:
        return "no decoding replica tells how many sequences it runs"
    return "neither gateways nor metrics tell how many prompt tokens arrive"

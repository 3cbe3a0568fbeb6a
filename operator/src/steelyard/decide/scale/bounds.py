"""The limits of a spec, applied: minima and maxima, budget, cost, ratio.

Order: a minimum or a ratio bound may ask for more of a role (that is a need like any other); then everything is cut
down to the budget, never up. A count or a price that cannot be read allows no growth where a budget needs it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

from steelyard.api.labels import DECODE, PREFILL
from steelyard.decide.scale.decision import LimitedBy
from steelyard.decide.scale.signals import Limits

Sizes = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Fitted:
    """Sizes within the limits, and what held them."""

    sizes: dict[str, int]
    limited_by: LimitedBy


def accelerators(sizes: Sizes, limits: Limits) -> float:
    """Accelerators that replicas take; a count that cannot be read counts as 1 here and forbids growth elsewhere."""
    return sum(number * (limits.roles[role].accelerators or 1) for role, number in sizes.items())


def cost(sizes: Sizes, limits: Limits) -> float:
    """Cost per hour of replicas; an unknown price counts as 0 here and forbids growth elsewhere."""
    total = 0.0
    for role, number in sizes.items():
        bounds = limits.roles[role]
        total += number * (bounds.accelerators or 1) * (bounds.price_per_hour or 0.0)
    return total


def affordable(sizes: Sizes, limits: Limits) -> bool:
    """Whether the sizes keep both budgets."""
    within = limits.accelerators is None or accelerators(sizes, limits) <= limits.accelerators
    return within and (limits.cost_per_hour is None or cost(sizes, limits) <= limits.cost_per_hour)


def unknown_cost(limits: Limits) -> bool:
    """Whether a budget is set that cannot be checked."""
    counted = limits.accelerators is not None or limits.cost_per_hour is not None
    no_count = any(bounds.accelerators is None for bounds in limits.roles.values())
    no_price = any(bounds.price_per_hour is None for bounds in limits.roles.values())
    return (counted and no_count) or (limits.cost_per_hour is not None and no_price)


def most_in_all(limits: Limits, wanted_cap: int) -> int:
    """The largest number of replicas of interchangeable roles that maxima and budgets allow, at most `wanted_cap`."""
    most = min(wanted_cap, sum(bounds.max for bounds in limits.roles.values()))
    dearest = max(limits.roles, key=lambda role: limits.roles[role].accelerators or 1)
    bounds = limits.roles[dearest]
    per_replica = bounds.accelerators or 1
    if limits.accelerators is not None:
        most = min(most, floor(limits.accelerators / per_replica))
    if limits.cost_per_hour is not None and bounds.price_per_hour:
        most = min(most, floor(limits.cost_per_hour / (per_replica * bounds.price_per_hour)))
    return max(most, sum(bounds.min for bounds in limits.roles.values()))


def decode_range(total: int, limits: Limits) -> tuple[int, int]:
    """The least and the most decode replicas of `total` interchangeable ones, by minima, maxima and ratio, at least one
    of each role. Where the bounds contradict each other, minima rule over ratios and ratios over maxima."""
    prefill, decode = limits.roles[PREFILL], limits.roles[DECODE]
    low, high = max(1, decode.min), min(total - 1, total - prefill.min)
    least, most = max(low, total - prefill.max), min(high, decode.max)
    if limits.ratio_max is not None:
        least = max(least, ceil(total / (1 + limits.ratio_max)))
    if limits.ratio_min is not None:
        most = min(most, floor(total / (1 + limits.ratio_min)))
    least = max(low, min(least, high))
    return least, max(least, min(most, high))


def ratio_possible(total: int, limits: Limits) -> bool:
    """Whether that many interchangeable replicas can be split within the ratio's bounds at all."""
    decode, _ = decode_range(total, limits)
    low, high = limits.ratio_min, limits.ratio_max
    at_most = high is None or total - decode <= high * decode
    return at_most and (low is None or total - decode >= low * decode)


def fit(wanted: Sizes, current: Sizes, limits: Limits, pain: Callable[[str, int], float]) -> Fitted:
    """Bring wanted sizes into the limits. `pain(role, size)` predicts what share is missed at that size: over budget,
    the role that loses least is cut first."""
    sizes = dict(wanted)
    limited = LimitedBy.NONE
    for role, bounds in limits.roles.items():
        if sizes[role] < bounds.min:
            sizes[role], limited = bounds.min, LimitedBy.MIN
        elif sizes[role] > bounds.max:
            sizes[role], limited = bounds.max, LimitedBy.MAX
    if _raise_to_ratio(sizes, limits):
        limited = LimitedBy.RATIO
    if unknown_cost(limits):
        for role, number in sizes.items():
            allowed = max(current.get(role, 0), limits.roles[role].min)
            if number > allowed:
                sizes[role], limited = allowed, LimitedBy.UNKNOWN_COST
    while not affordable(sizes, limits):
        cheapest = _cheapest(sizes, limits, pain)
        if cheapest is None:
            return Fitted(sizes, LimitedBy.BUDGET)
        sizes[cheapest] -= 1
        limited = LimitedBy.BUDGET
    if _cut_to_ratio(sizes, limits) and limited is not LimitedBy.BUDGET:
        limited = LimitedBy.RATIO
    return Fitted(sizes, limited)


def _bounds(sizes: Sizes, limits: Limits) -> tuple[Fraction, Fraction | None, Fraction | None] | None:
    """Accelerators of one prefill replica over those of one decode replica, and the ratio's bounds in replicas."""
    if PREFILL not in sizes or (limits.ratio_min is None and limits.ratio_max is None):
        return None
    weight = Fraction(limits.roles[PREFILL].accelerators or 1, limits.roles[DECODE].accelerators or 1)
    low = None if limits.ratio_min is None else limits.ratio_min / weight
    high = None if limits.ratio_max is None else limits.ratio_max / weight
    return weight, low, high


def _raise_to_ratio(sizes: dict[str, int], limits: Limits) -> bool:
    """Raise the role of which the ratio asks for more, up to its maximum."""
    before, bounds = dict(sizes), _bounds(sizes, limits)
    if bounds is None:
        return False
    _, low, high = bounds
    if high is not None and sizes[PREFILL] > high * sizes[DECODE]:
        sizes[DECODE] = max(sizes[DECODE], min(limits.roles[DECODE].max, ceil(sizes[PREFILL] / high)))
    if low is not None and sizes[PREFILL] < low * sizes[DECODE]:
        sizes[PREFILL] = max(sizes[PREFILL], min(limits.roles[PREFILL].max, ceil(low * sizes[DECODE])))
    return sizes != before


def _cut_to_ratio(sizes: dict[str, int], limits: Limits) -> bool:
    """Lower the role of which there is too much for the ratio, down to its minimum."""
    before, bounds = dict(sizes), _bounds(sizes, limits)
    if bounds is None:
        return False
    _, low, high = bounds
    if high is not None:
        sizes[PREFILL] = min(sizes[PREFILL], max(limits.roles[PREFILL].min, floor(high * sizes[DECODE])))
    if low is not None:
        sizes[DECODE] = min(sizes[DECODE], max(limits.roles[DECODE].min, floor(sizes[PREFILL] / low)))
    return sizes != before


def _cheapest(sizes: Sizes, limits: Limits, pain: Callable[[str, int], float]) -> str | None:
    """The role whose cut by one costs least; None where all are at their minimum."""
    candidates = [role for role, number in sizes.items() if number > limits.roles[role].min]
    if not candidates:
        return None
    return min(candidates, key=lambda role: (pain(role, sizes[role] - 1), -sizes[role], role))

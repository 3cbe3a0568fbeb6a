"""What holds for every signal, limit and memory."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scale_worlds import NOW, fleet, replica, service, signals, total
from steelyard.decide.scale import bounds, loss
from steelyard.decide.scale.decision import Decision, Learnt, Memory, Tick
from steelyard.decide.scale.law import decide
from steelyard.decide.scale.signals import Limits, Phase, Replica, RoleLimits, Service, Signals

ROLES = ("prefill", "decode")
maybe = st.none() | st.floats(0, 400)


@st.composite
def replicas(draw: st.DrawFn, most: int = 14) -> tuple[Replica, ...]:
    phases = st.sampled_from([Phase.READY] * 6 + [Phase.STARTING, Phase.DRAINING, Phase.UNSCHEDULABLE, Phase.FAILING])
    found = []
    for i in range(draw(st.integers(0, most))):
        phase = draw(phases)
        gauges = {}
        if phase is Phase.READY:
            gauges = {"running": draw(maybe), "kv_use": draw(st.none() | st.floats(0, 1))}
        found.append(
            replica(
                f"r{i}",
                draw(st.sampled_from(ROLES)),
                phase,
                pool=draw(st.sampled_from(ROLES)),
                kv_group=draw(st.sampled_from(["g"] * 9 + ["h"])),
                since=NOW - draw(st.floats(0, 2000)),
                revision=draw(st.sampled_from(["1", "2"])),
                **gauges,
            )
        )
    return tuple(found)


@st.composite
def scenes(draw: st.DrawFn) -> Signals:
    pods = draw(replicas())
    seen = signals(pods, rate=draw(st.floats(0, 300_000)))
    asked = {
        pool: max(0, sum(r.pool == pool and r.phase is not Phase.DRAINING for r in pods) + draw(st.integers(-2, 2)))
        for pool in ROLES
    }
    return replace(
        seen,
        asked=asked,
        sample_age=draw(st.sampled_from([None, 1.0, 1.0, 1.0, 1.0, 100.0])),
        arrivals=draw(st.sampled_from([None, seen.arrivals, seen.arrivals])),
        uncached_rate=draw(st.sampled_from([None, seen.uncached_rate])),
        generated_rate=draw(st.none() | st.floats(0, 50_000)),
        decode_queue=draw(maybe),
        decode_inflow=draw(st.none() | st.floats(-50, 50)),
        prefill_queue_tokens=draw(st.none() | st.floats(0, 1e6)),
        ttft_met=draw(maybe),
        ttft_judged=draw(maybe),
    )


@st.composite
def limits(draw: st.DrawFn) -> Limits:
    least = {role: draw(st.integers(1, 3)) for role in ROLES}
    most = {role: least[role] + draw(st.integers(0, 12)) for role in ROLES}
    weight = draw(st.sampled_from([1, 1, 2, 8]))
    price = draw(st.sampled_from([None, 2.0]))
    needed = sum(least.values()) * weight
    return Limits(
        roles={role: RoleLimits(least[role], most[role], weight, price) for role in ROLES},
        accelerators=draw(st.none() | st.integers(needed, needed + 12 * weight)),
        cost_per_hour=draw(st.none() | st.floats(needed * 2.0, needed * 2.0 + 24 * weight)),
        role_change=draw(st.booleans()),
    )


def of(given_limits: Limits, attainment: float = 0.95) -> Service:
    return replace(service(attainment=attainment), limits=given_limits)


def can_be_checked(spec: Limits) -> bool:
    return not bounds.unknown_cost(spec)


@settings(max_examples=200, deadline=None)
@given(limits(), scenes())
def test_every_decision_keeps_the_limits_and_agrees_with_itself(spec: Limits, seen: Signals) -> None:
    decision = decide(of(spec), seen, Memory())
    sizes_keep_minima_maxima_and_budgets(spec, decision)
    pools_never_grow_beyond_the_budget(spec, seen, decision)
    steps_agree_with_each_other(seen, decision)
    one_of_each_role_stays(seen, decision)


def sizes_keep_minima_maxima_and_budgets(spec: Limits, decision: Decision) -> None:
    for role, number in decision.desired.items():
        assert number >= spec.roles[role].min
        assert number <= spec.roles[role].max or not can_be_checked(spec)
    assert bounds.affordable(decision.desired, spec) or not can_be_checked(spec)


def pools_never_grow_beyond_the_budget(spec: Limits, seen: Signals, decision: Decision) -> None:
    """Draining replicas hold their accelerators until they are gone; what is above a lowered budget only becomes less."""
    draining = sum(r.phase is Phase.DRAINING for r in seen.replicas)
    if total(decision) > sum(seen.asked.values()) and spec.accelerators is not None:
        assert (total(decision) + draining) * (spec.roles["prefill"].accelerators or 1) <= spec.accelerators


def steps_agree_with_each_other(seen: Signals, decision: Decision) -> None:
    live = {r.name: r for r in seen.replicas if r.phase is not Phase.DRAINING}
    moved = dict(decision.relabel)
    assert len(set(decision.remove)) == len(decision.remove)
    assert set(decision.remove) <= set(live)
    assert len(moved) == len(decision.relabel)
    assert not set(moved) & set(decision.remove)
    assert all(live[name].phase is Phase.READY and live[name].role != role for name, role in moved.items())
    for pool, number in decision.pools.items():
        removed = sum(live[name].pool == pool for name in decision.remove)
        made = sum(r.pool == pool for r in live.values())
        unmade = max(0, seen.asked.get(pool, 0) - made)
        assert number >= max(0, seen.asked.get(pool, 0) - removed - unmade)


def one_of_each_role_stays(seen: Signals, decision: Decision) -> None:
    """Relabelling never leaves a role without a ready replica that had one."""
    moved = dict(decision.relabel)
    ready = [r for r in seen.replicas if r.phase is Phase.READY]
    for role in ROLES:
        if moved and any(r.role == role for r in ready):
            assert any(moved.get(r.name, r.role) == role for r in ready)


@settings(max_examples=100, deadline=None)
@given(scenes(), st.sampled_from(["age", "arrivals", "decode"]))
def test_unknown_never_shrinks(seen: Signals, what: str) -> None:
    """Within the limits; replicas that have no node are withdrawn all the same, that is known from the API."""
    if what == "age":
        seen = replace(seen, sample_age=None)
    elif what == "arrivals":
        seen = replace(seen, arrivals=None, uncached_rate=None)
    else:
        seen = replace(seen, decode_queue=None, sample_age=1.0)
    wide = replace(service(prefill=(1, 100), decode=(1, 100)), limits=service(prefill=(1, 100), decode=(1, 100)).limits)
    decision = decide(wide, seen, Memory())
    lost = [r for r in seen.replicas if r.name in decision.remove and r.phase is not Phase.READY]
    capacity = sum(r.phase is Phase.READY for r in seen.replicas)
    removed_ready = [n for n in decision.remove if n not in {r.name for r in lost}]
    assert removed_ready == [] or sum(seen.asked.values()) < capacity
    if what != "decode":
        assert not decision.relabel
        assert total(decision) <= sum(seen.asked.values()) + len(ROLES)  # no more than minima ask for


@settings(max_examples=100, deadline=None)
@given(limits(), scenes(), st.floats(0.5, 0.99), st.floats(0.001, 0.2))
def test_a_softer_objective_never_costs_more(spec: Limits, seen: Signals, attainment: float, softer: float) -> None:
    assume(can_be_checked(spec))
    strict = decide(of(spec, attainment), seen, Memory())
    soft = decide(of(spec, max(0.01, attainment - softer)), seen, Memory())
    assert bounds.accelerators(soft.desired, spec) <= bounds.accelerators(strict.desired, spec)


@settings(max_examples=100, deadline=None)
@given(
    limits(),
    st.integers(0, 40),
    st.integers(0, 40),
    st.sampled_from([None, Fraction(1, 4), Fraction(1, 2), Fraction(1)]),
    st.sampled_from([None, Fraction(1), Fraction(3, 2), Fraction(4)]),
)
def test_a_clamp_grows_nothing_that_no_bound_asks_for(
    spec: Limits, prefill: int, decode: int, low: Fraction | None, high: Fraction | None
) -> None:
    spec = replace(spec, ratio_min=low, ratio_max=high)
    wanted = {"prefill": prefill, "decode": decode}
    fitted = bounds.fit(wanted, wanted, spec, lambda role, size: 1 / (1 + size)).sizes
    for role, other in (("prefill", "decode"), ("decode", "prefill")):
        raised = fitted[role] > max(wanted[role], spec.roles[role].min)
        bound = low if role == "prefill" else high
        assert not raised or (bound is not None and fitted[role] <= max(wanted[other], spec.roles[other].min) * 4)
    assert can_be_checked(spec) <= bounds.affordable(fitted, spec)


@settings(max_examples=100, deadline=None)
@given(
    st.integers(2, 30),
    st.floats(0, 200_000),
    st.floats(0, 900),
    st.sampled_from([Fraction(1, 4), Fraction(1, 2), Fraction(1)]),
    st.sampled_from([Fraction(1), Fraction(3, 2), Fraction(4)]),
    st.booleans(),
)
def test_the_ratio_stays_in_bounds(
    budget: int, rate: float, running: float, low: Fraction, high: Fraction, change: bool
) -> None:
    spec = service(ratio_min=low, ratio_max=high, accelerators=budget, role_change=change)
    pods = fleet(1, 1, running=running, kv_use=0.1)
    wanted = decide(spec, signals(pods, rate=rate), Memory()).desired
    assert low <= Fraction(wanted["prefill"], wanted["decode"]) <= high


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.floats(0.8, 1.6))
def test_idle_is_a_fixed_point(prefill: int, decode: int, beta: float) -> None:
    spec = service(prefill=(prefill, 20), decode=(decode, 20))
    memory = Memory(learnt=Learnt(beta=beta))
    pods = fleet(prefill, decode)
    for tick in range(20):
        decision = decide(spec, signals(pods, at=NOW + 5 * tick), memory)
        assert decision.pools == {"prefill": prefill, "decode": decode}
        assert not decision.relabel
        assert not decision.remove
        memory = decision.memory


@settings(max_examples=30, deadline=None)
@given(st.floats(20_000, 300_000), st.integers(6, 30), st.sampled_from([10.0, 60.0, 300.0]))
def test_replicas_that_never_come_are_asked_for_once(rate: float, most: int, start: float) -> None:
    """Coming capacity is capacity: the second decision asks for no more than the first; after the deadline, nothing
    that started has come up, so the pool does not grow at all."""
    spec = service(prefill=(1, most), decode=(1, most))
    spec = replace(spec, engines={r: replace(e, start_seconds=start) for r, e in spec.engines.items()})
    memory, pods = Memory(), fleet(1, 1)
    asked = {"prefill": 1, "decode": 1}
    seen = []
    for tick in range(60):
        at = NOW + 25 * tick
        decision = decide(spec, signals(pods, rate=rate, at=at, asked=asked), memory)
        memory = decision.memory
        for pool, number in decision.pools.items():
            have = sum(p.pool == pool for p in pods)
            new = (replica(f"{pool}{tick}-{i}", pool, Phase.STARTING, since=at) for i in range(number - have))
            pods = (*(p for p in pods if p.name not in decision.remove), *new)
        asked = dict(decision.pools)
        seen.append(sum(asked.values()))
    assert max(seen) == seen[0]
    assert seen[0] <= 2 * most


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.floats(0, 20_000), min_size=1, max_size=80),
    st.lists(st.integers(0, 6), min_size=1, max_size=4),
    st.floats(0, 0.5),
    st.integers(1, 25),
    st.integers(0, 25),
    st.integers(0, 30),
)
def test_the_search_finds_the_fewest_replicas(
    tokens: list[float], needs: list[int], share: float, low: int, more: int, guess: int
) -> None:
    """Against trying every number; the loss never rises with the number of replicas."""
    step = max(1, len(tokens) // len(needs))
    begins = [i * step * 0.25 for i in range(len(needs))]
    end = len(tokens) * 0.25
    ticks = [
        Tick(NOW - end + begin, None, float(need)) for begin, need in zip(begins, needs, strict=True) if begin < end
    ]
    arrived = loss.load(tuple(tokens), (*ticks, Tick(NOW, None, 0.0)), 120.0)
    losses = [loss.lost(arrived, n, 9_000.0, 1.0) for n in range(low, low + more + 1)]
    assert all(a >= b for a, b in pairwise(losses))
    expected = next((low + i for i, lost in enumerate(losses) if lost <= share * arrived.tokens), low + more)
    assert loss.least(arrived, share, 9_000.0, 1.0, (low, low + more), guess) == expected

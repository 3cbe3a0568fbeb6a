"""The parts of the law one by one, and the failure modes that its design met (docs/design/autoscaler.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scale_worlds import ENGINE, NOW, PRIOR, fleet, replica, service, signals, total
from steelyard.decide.model import least_squares
from steelyard.decide.model.latency import Polynomial
from steelyard.decide.scale import fits, learning, stored
from steelyard.decide.scale.capacity import capacity
from steelyard.decide.scale.census import UNSCHEDULABLE_SECONDS, count, deadline_seconds
from steelyard.decide.scale.changes import CONFIRM_SECONDS, PAUSE_SECONDS
from steelyard.decide.scale.decision import Conversion, Learnt, LimitedBy, Memory, Sums
from steelyard.decide.scale.demand import growth
from steelyard.decide.scale.law import decide
from steelyard.decide.scale.signals import Objectives, Phase, Replica, StartUp
from steelyard.decide.scale.split import decode_share
from steelyard.decide.scale.steps import growing_only
from steelyard.decide.scale.windows import keep

NOTHING = Sums()
PROMISED = Objectives(2.0, 0.05, 0.95)


@pytest.mark.parametrize(
    ("need", "current", "ready", "spare", "expected", "because"),
    [
        (1.9, 1, 12, True, 3, "1.9/.8 rounds up to 3: decode grows at once"),
        (1.9, 1, 12, False, 2, "prefill cannot spare it: filled to .95"),
        (2.5, 5, 12, True, 4, "falling: 2.5/.8 + .5 = 3.6, one more than the need alone"),
        (2.3, 4, 12, True, 4, "… and no fall to 3 while 2.3/.8 + .5 = 3.4 would not fit into it"),
        (0.0, 4, 12, True, 1, "an idle decode keeps one"),
        (40.0, 4, 12, True, 11, "prefill keeps one, whatever decode needs"),
    ],
)
def test_the_split(need: float, current: int, ready: int, spare: bool, expected: int, because: str) -> None:
    assert decode_share(need, current, ready, (1, ready - 1), lambda left: spare) == expected, because


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 30), st.integers(0, 20)), min_size=1, max_size=30), st.floats(1, 100))
def test_a_window_gives_the_most_of_its_span(steps: list[tuple[float, int]], seconds: float) -> None:
    window: tuple[tuple[float, int], ...] = ()
    entered: list[tuple[float, int]] = []
    now = NOW
    for gap, need in steps:
        now += gap
        entered.append((now, need))
        window = keep(window, now, need, seconds)
        assert window[0][1] == max(n for t, n in entered if t >= now - seconds - 1e-9)
        assert window[-1] == (now, need)


# --- learning


def passes(prefill: tuple[float, float, float], tokens: list[float], weight: float = 1.0) -> list[fits.Point]:
    a, b, c = prefill
    return [fits.prefill_point(n, a + b * n + c * n * n, weight) for n in tokens]


def model(prefill: Sums = NOTHING, decode: Sums = NOTHING) -> Polynomial:
    return fits.fitted(PRIOR, prefill, decode, ENGINE.max_batch_tokens, ENGINE.max_sequences)


def test_nothing_measured_is_the_prior() -> None:
    assert model() == PRIOR


@settings(max_examples=30, deadline=None)
@given(st.floats(0.002, 0.1), st.floats(2e-5, 4e-4), st.floats(0, 2e-8))
def test_a_prefill_law_is_recovered(a: float, b: float, c: float) -> None:
    sums = fits.learn(Sums(), passes((a, b, c), [64.0, 512.0, 1500.0, 3000.0, 8000.0] * 8), 5.0)
    learnt = model(prefill=sums)
    for n in (64.0, 1000.0, 4000.0, 8000.0):
        truth = a + b * n + c * n * n
        within = min(max(truth, PRIOR.prefill_seconds([n]) / 10), PRIOR.prefill_seconds([n]) * 10)
        assert learnt.prefill_seconds([n]) == pytest.approx(within, rel=0.1)


@settings(max_examples=30, deadline=None)
@given(st.floats(0.004, 0.03), st.floats(0.005, 0.05), st.floats(2e-5, 3e-4))
def test_a_decode_law_is_recovered(g0: float, g1: float, g3: float) -> None:
    points = [
        fits.decode_point(use, batch, g0 + g1 * use + g3 * batch, 0.0)
        for use in (0.1, 0.4, 0.8)
        for batch in (10.0, 60.0, 150.0)
    ]
    learnt = model(decode=fits.learn(Sums(), points * 6, 5.0))
    assert learnt.decode_step_seconds(100, 2000) == pytest.approx(g0 + g1 * 0.4 + g3 * 100, rel=0.05)


def test_few_samples_stay_near_the_prior() -> None:
    slow = fits.learn(Sums(), passes((0.5, 2e-3, 0.0), [1000.0] * 5), 5.0)
    assert model(prefill=slow).prefill_seconds([1000]) <= 2 * PRIOR.prefill_seconds([1000]) * 1.001
    fast = fits.learn(Sums(), passes((1e-4, 1e-6, 0.0), [1000.0] * 5), 5.0)
    assert model(prefill=fast).prefill_seconds([1000]) >= PRIOR.prefill_seconds([1000]) / 2.001


def test_one_length_says_nothing_of_others_but_by_scale() -> None:
    """A device three times slower than its prior, seen on short prompts only, is three times slower on long ones too."""
    a, b, c = (3 * value for value in PRIOR.prefill)
    learnt = model(prefill=fits.learn(Sums(), passes((a, b, c), [100.0] * 200), 5.0))
    assert learnt.prefill_seconds([8000]) == pytest.approx(3 * PRIOR.prefill_seconds([8000]), rel=0.15)


def test_a_changed_engine_is_followed() -> None:
    sums = Sums()
    lengths = [200.0, 1000.0, 4000.0]
    for _ in range(100):
        sums = fits.learn(sums, passes(PRIOR.prefill, lengths), 5.0)
    a, b, c = (2 * value for value in PRIOR.prefill)
    for _ in range(360):  # half an hour: three times the memory
        sums = fits.learn(sums, passes((a, b, c), lengths), 5.0)
    assert model(prefill=sums).prefill_seconds([2000]) == pytest.approx(2 * PRIOR.prefill_seconds([2000]), rel=0.12)


def test_nonsense_teaches_nothing() -> None:
    bad = [fits.Point((1.0, 1.0, 1.0), value) for value in (0.0, -1.0, float("nan"), float("inf"))]
    assert fits.learn(Sums(), bad, 5.0) == Sums()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 10), st.floats(0.1, 5)), min_size=1, max_size=12))
def test_coefficients_are_never_negative(points: list[tuple[float, float, float]]) -> None:
    moments, products = [0.0] * 6, [0.0] * 3
    for x, y, value in points:
        least_squares.add(moments, products, (1.0, x, y), value, 1.0)
    solved = least_squares.non_negative(moments, products)
    assert solved is not None
    assert min(solved) >= 0


def test_sequences_of_a_replica() -> None:
    """R(c) by hand: step(180, 1000) = 12 + 15·.36 + 18 = 35.4 ms; at 5,000 tokens KV binds: .85·500,000/5,000."""
    known = capacity(ENGINE, Learnt(), PROMISED)
    assert known.held(1000.0) == 180
    assert known.held(5000.0) == 85
    tight = capacity(ENGINE, Learnt(), replace(PROMISED, tpot=0.025))
    assert tight.held(1000.0) == int((0.95 * 0.025 - 0.012) / (0.015 / 500 + 1e-4))
    assert capacity(ENGINE, Learnt(), replace(PROMISED, tpot=0.001)).held(1000.0) == 1
    assert (known.admitted(1000.0), known.admitted(5000.0)) == (
        200,
        95,
    )  # nearer to the limits than what is planned for


def test_start_ups_are_learnt_once_each() -> None:
    pod = replica("p0", "prefill", since=NOW - 10, start=StartUp(1.0, 30.0, 50.0))
    engines = {"prefill": ENGINE, "decode": ENGINE}
    once = learning.learn(Learnt(), signals((pod,)), engines, 5.0)
    assert learning.start_seconds(once, 60.0) == 81.0
    assert learning.learn(once, signals((pod,)), engines, 5.0) == once
    slower = replica("p1", "prefill", since=NOW - 5, start=StartUp(1.0, 30.0, 150.0))
    assert learning.start_seconds(learning.learn(once, signals((pod, slower)), engines, 5.0), 60.0) == pytest.approx(
        111.0
    )


@pytest.mark.parametrize(
    ("inflow", "answer", "start", "least", "most", "because"),
    [
        (0.0, 1000.0, 60.0, 0.0, 0.0, "nothing grows"),
        (-5.0, 1000.0, 60.0, 0.0, 0.0, "what shrinks is not given up for that: the windows rule"),
        (0.4, 1000.0, 60.0, 0.0, 0.0, "within the noise of ten requests a second"),
        (5.0, 5000.0, 60.0, 200.0, 5.0 * 65, "long answers grow for the whole start"),
        (5.0, 20.0, 60.0, 0.0, 10.0, "short ones end before it"),
        (5.0, 5000.0, 10.0, 40.0, 5.0 * 15, "a fast start needs no foresight"),
    ],
)
def test_decode_is_sized_for_when_a_replica_is_ready(
    inflow: float, answer: float, start: float, least: float, most: float, because: str
) -> None:
    seen = signals(fleet(1, 1), decode_inflow=inflow, mean_output=answer, request_rate=10.0)
    assert least <= growth(seen, step=0.04, start=start) <= most, because


def test_growth_that_is_not_known_is_none() -> None:
    seen = signals(fleet(1, 1), decode_inflow=None, mean_output=None, request_rate=None)
    assert growth(seen, step=0.04, start=60.0) == 0.0


@pytest.mark.parametrize(
    ("met", "judged", "waits", "starting", "direction", "because"),
    [
        (70, 100, False, False, 1, "a bad minute raises beta"),
        (100, 100, False, False, -1, "a good one lowers it slowly"),
        (89, 100, False, False, 0, "just below what a minute must reach: slack"),
        (10, 29, False, False, 0, "too few to judge"),
        (10, 100, True, False, 0, "failure mode 5: decode makes them wait, prefill is not to blame"),
        (10, 100, False, True, 0, "replicas that were asked for still start: they are late, the model is not wrong"),
        (100, 100, False, True, -1, "a good minute counts while something starts"),
    ],
)
def test_feedback(met: float, judged: float, waits: bool, starting: bool, direction: int, because: str) -> None:
    seen = signals(fleet(1, 1), ttft_met=float(met), ttft_judged=float(judged))
    after = learning.feedback(1.0, seen, PROMISED, 5.0, decode_waits=waits, starting=starting)
    assert (after > 1.0) - (after < 1.0) == direction, because


def test_what_was_learnt_survives_being_stored() -> None:
    sums = fits.learn(Sums(), passes(PRIOR.prefill, [100.0, 2000.0, 8000.0] * 9), 5.0)
    learnt = Learnt(1.25, sums, Sums(), StartUp(1.0, 20.0, 39.0), 3, NOW)
    again = stored.read(stored.manifest(learnt))
    assert (again.beta, again.start, again.start_samples, again.start_until) == (1.25, learnt.start, 3, NOW)
    before, after = model(prefill=learnt.prefill), model(prefill=again.prefill)
    assert after.prefill_seconds([3000]) == pytest.approx(before.prefill_seconds([3000]), rel=1e-3)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"beta": "high"},
        {"prefill": {"moments": [1], "products": [1, 2, 3], "samples": 4}},
        {"prefill": {"moments": "123456", "products": [1, 2, 3], "samples": 4}},
        {"start": {"scheduling": 1, "loading": None, "warming": 3}},
        {"beta": float("nan"), "start": 5, "decode": []},
    ],
)
def test_what_cannot_be_read_is_forgotten(data: dict[str, object]) -> None:
    assert stored.read(data) == Learnt()


# --- who counts


@pytest.mark.parametrize(
    ("phase", "age", "have", "held", "withdrawn", "because"),
    [
        (Phase.READY, 5000.0, 1, 1, 0, "ready"),
        (Phase.STARTING, 100.0, 1, 1, 0, "coming"),
        (Phase.STARTING, 121.0, 0, 1, 0, "past twice the start-up time: no capacity, still paid for"),
        (Phase.FAILING, 100.0, 1, 1, 0, "crashing pods are coming ones, for a bounded time"),
        (Phase.UNSCHEDULABLE, 59.0, 0, 1, 0, "no node: nothing"),
        (Phase.UNSCHEDULABLE, 61.0, 0, 0, 1, "withdrawn after a minute"),
        (Phase.DRAINING, 10.0, 0, 0, 0, "leaves"),
    ],
)
def test_who_counts_as_what(phase: Phase, age: float, have: int, held: int, withdrawn: int, because: str) -> None:
    seen = signals((replica("p0", "prefill", phase, since=NOW - age),))
    census = count(seen, deadline_seconds(60.0, 1), {})
    assert (census.have("prefill"), census.held("prefill"), len(census.withdrawn)) == (have, held, withdrawn), because


def test_what_was_asked_for_counts_as_coming_until_its_deadline() -> None:
    seen = signals(fleet(1, 1), asked={"prefill": 4, "decode": 1})
    assert count(seen, 120.0, {"prefill": NOW - 119}).have("prefill") == 4
    late = count(seen, 120.0, {"prefill": NOW - 121})
    assert (late.have("prefill"), late.held("prefill")) == (1, 4)


def test_before_any_start_was_measured_patience_is_long() -> None:
    assert deadline_seconds(60.0, 0) == 600.0
    assert deadline_seconds(60.0, 5) == 120.0


# --- failure modes


def test_1_nothing_shrinks_at_the_first_tick() -> None:
    assert decide(service(), signals(fleet(8, 4)), Memory()).pools == {"prefill": 8, "decode": 4}


def test_3_a_full_queue_asks_for_no_more_than_the_arrivals_do() -> None:
    """Scaling on *waiting* overshoots: it is 0 or huge."""
    pods = fleet(4, 1)
    calm = decide(service(), signals(pods, rate=60_000.0), Memory()).desired
    full = decide(
        service(), signals(pods, rate=60_000.0, prefill_queue=900.0, prefill_queue_tokens=9e5), Memory()
    ).desired
    assert full["prefill"] == calm["prefill"]


def test_4_smooth_overload_needs_the_rate_not_only_bursts() -> None:
    """52,000 tokens/s are within what 5 replicas of 10,973 serve without loss; .9 of them is not."""
    decision = decide(service(), signals(fleet(5, 1), rate=52_000.0), Memory())
    rates = {term.name: term.replicas for term in decision.terms}
    assert rates["burst"] < rates["rate"]
    assert decision.ruled == "rate"


def test_2_a_surplus_is_kept_for_two_starts() -> None:
    spec = service()
    memory = decide(spec, signals(fleet(9, 1), rate=80_000.0), Memory()).memory
    sizes = []
    for tick in range(1, 60):
        decision = decide(spec, signals(fleet(9, 1), at=NOW + 5 * tick), memory)
        memory = decision.memory
        sizes.append((5 * tick, total(decision)))
    # the arrivals are gone at once here, so only the window of 120 s holds
    assert all(size == 10 for seconds, size in sizes if seconds <= 120)
    assert sizes[-1][1] == 2


def test_6_the_budget_bounds_even_impossible_prompts() -> None:
    decision = decide(service(accelerators=9), signals(fleet(2, 1), rate=3e7), Memory())
    assert total(decision) == 9
    assert decision.limited_by is LimitedBy.BUDGET


def test_spans_between_scrapes_hide_bursts_and_are_allowed_a_tenth_of_the_losses() -> None:
    pods, memory = fleet(4, 1), Memory()
    for tick in range(24):
        rate = 90_000.0 if tick % 12 == 11 else 20_000.0
        coarse = signals(pods, arrivals=None, uncached_rate=rate, at=NOW + 5 * tick)
        memory = decide(service(), coarse, memory).memory
    windows = ((20_000.0 * 0.25,) * 220 + (90_000.0 * 0.25,) * 20) * 4
    at = NOW + 120
    exact = decide(service(), signals(pods, arrivals=windows, uncached_rate=20_000.0, at=at), Memory())
    rough = decide(service(), signals(pods, arrivals=None, uncached_rate=20_000.0, at=at), memory)
    assert next(t.replicas for t in rough.terms if t.name == "burst") > next(
        t.replicas for t in exact.terms if t.name == "burst"
    )


def test_roles_change_only_among_equals_and_enough_of_them() -> None:
    hungry = {"running": 180.0, "kv_use": 0.4}
    many, few = fleet(6, 1, **hungry), fleet(2, 1, **hungry)
    waiting = {"decode_queue": 300.0}
    assert decide(service(), signals(many, **waiting), Memory()).relabel
    assert not decide(service(role_change=False), signals(many, **waiting), Memory()).relabel
    others = tuple(replace(r, kv_group="h") if r.role == "decode" else r for r in many)
    assert not decide(service(), signals(others, **waiting), Memory()).relabel
    assert not decide(service(), signals(few), Memory()).relabel


def test_what_a_replacement_of_pods_holds_back_is_not_remembered_as_asked_for() -> None:
    """A role change that never was counted as failed after ten seconds, and ended all role changes for five minutes."""
    many = fleet(6, 6)
    before = Memory(conversions={"p0": Conversion("prefill", "decode", NOW - 5)}, scarce_until={"decode": NOW + 60})
    waiting = signals(many)
    flips = (("d0", "prefill"), ("p0", "prefill"))
    decided = replace(decide(service(), waiting, before), relabel=flips, pools={"prefill": 4, "decode": 7})
    told = replace(
        decided.memory,
        conversions={
            "p0": Conversion("decode", "prefill", NOW),
            "p1": Conversion("decode", "prefill", NOW - 20),
            "d0": Conversion("decode", "prefill", NOW),
        },
        scarce_until={"prefill": NOW + PAUSE_SECONDS},
    )
    left = growing_only(replace(decided, memory=told), waiting.asked, before)
    assert (left.relabel, left.remove, left.withdrawn) == ((), (), ())
    assert left.pools == {"prefill": 6, "decode": 7}
    assert left.memory.conversions == {"p0": before.conversions["p0"], "p1": told.conversions["p1"]}
    assert left.memory.scarce_until == before.scarce_until
    assert replace(left.memory, conversions={}, scarce_until={}) == replace(told, conversions={}, scarce_until={})


def test_role_changes_begin_as_soon_as_no_pods_are_replaced_any_more() -> None:
    many, memory = fleet(6, 1, running=180.0, kv_use=0.4), Memory()
    for tick in range(5):
        waiting = signals(many, rate=50_000.0, decode_queue=300.0, at=NOW + 5 * tick)
        decision = decide(service(), waiting, memory)
        assert decision.relabel, "they would be asked for at every tick"
        memory = growing_only(decision, waiting.asked, memory).memory
    assert CONFIRM_SECONDS < 5 * 4
    later = signals(many, rate=50_000.0, decode_queue=300.0, at=NOW + 25)
    assert decide(service(), later, memory).relabel


def test_a_conversion_is_undone_first() -> None:
    spec, memory = service(), Memory()
    pods = (*fleet(4, 0), *(replica(f"d{i}", "decode", running=30.0, kv_use=0.1) for i in range(4)))
    decision = decide(spec, signals(pods), memory)
    gone = dict(decision.relabel)
    assert set(gone.values()) == {"prefill"}
    after = tuple(replace(r, role=gone.get(r.name, r.role)) for r in pods)
    back = decide(spec, signals(after, decode_queue=900.0, at=NOW + 5), decision.memory)
    first = [name for name, role in back.relabel if role == "decode"][: len(gone)]
    assert set(first) == set(gone)


def test_a_service_that_starts_keeps_its_roles() -> None:
    """Fewer than two ready: there is nothing to split, and what starts is not replaced by what has another role."""
    starting = tuple(replica(f"{role}{i}", role, Phase.STARTING) for role in ("prefill", "decode") for i in range(4))
    for ready in ((), (replica("first", "prefill"),)):
        decision = decide(service(), signals((*ready, *starting)), Memory())
        assert decision.pools == {"prefill": 4 + len(ready), "decode": 4}
        assert not decision.remove
        assert not decision.relabel


def test_an_unconfirmed_role_change_ends_them_for_a_while() -> None:
    spec, pods = service(), fleet(6, 1, running=180.0, kv_use=0.4)
    memory = Memory()
    asked = []
    for tick in range(8):
        decision = decide(spec, signals(pods, rate=50_000.0, decode_queue=300.0, at=NOW + 5 * tick), memory)
        memory = decision.memory
        asked.append(bool(decision.relabel))
    assert asked[: int(CONFIRM_SECONDS / 5) + 1] == [True] * 3
    assert not any(asked[3:])
    later = decide(spec, signals(pods, rate=50_000.0, decode_queue=300.0, at=NOW + 20 + PAUSE_SECONDS), memory)
    assert later.relabel


def quiet_after_a_burst(changed: Mapping[int, tuple[Replica, ...]]) -> list[int]:
    """Sizes at each tick after a burst that three prefill replicas were made for; some ticks see other replicas."""
    memory, sizes = Memory(), []
    for tick in range(70):
        at = NOW + 5 * tick
        seen = signals(changed.get(tick, fleet(4, 1)), at=at)
        decision = decide(service(), seen, memory)
        memory = decision.memory
        sizes.append(sum(decision.pools.values()))
    return sizes


def test_a_prefill_replica_without_gauges_stops_a_shrink() -> None:
    """It may be full of work: what is not known is never taken for idle."""
    unknown = (*fleet(3, 1), replica("p3", "prefill", running=None, waiting=None, kv_use=None))
    assert set(quiet_after_a_burst(dict.fromkeys(range(70), unknown))) == {5}
    assert quiet_after_a_burst({})[-1] == 2


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_one_tick_with_an_unknown_replica_does_not_begin_the_wait_anew(role: str) -> None:
    """A decode replica whose gauges are unknown leaves decode's need unknown: the law holds for that tick."""
    unknown = tuple(
        replace(r, running=None, waiting=None, kv_use=None) if r.name in ("p3", "d0") and r.role == role else r
        for r in fleet(4, 1)
    )
    undisturbed, disturbed = quiet_after_a_burst({}), quiet_after_a_burst({10: unknown, 20: unknown})
    first, later = undisturbed.index(2), disturbed.index(2)
    assert first <= later <= first + 2, "as many ticks as were unknown, not another two minutes"


@pytest.mark.parametrize(("started", "grows"), [(True, True), (False, False)])
def test_replicas_lost_with_their_node_are_replaced_and_those_that_never_came_up_are_not(
    started: bool, grows: bool
) -> None:
    """Both are past their deadline; a node that is gone says nothing about the next start."""
    lost = replica("p1", "prefill", Phase.STARTING, since=NOW - 700, started=started)
    decision = decide(service(), signals((*fleet(1, 1), lost), rate=15_000.0), Memory())
    assert (decision.pools["prefill"] > 2) is grows
    assert (decision.limited_by is LimitedBy.START_FAILING) is not grows


def test_the_gateways_are_told_what_a_decode_replica_holds() -> None:
    busy = signals(fleet(2, 2, running=50.0, kv_use=0.5))  # 5,000 tokens each
    assert decide(service(), busy, Memory()).slots == 95
    assert decide(service(), replace(busy, sample_age=None), Memory()).slots is None


def test_a_guess_is_no_limit_until_it_is_measured() -> None:
    """Of a model that nobody described sizes need some figure, and requests are held back by measured ones only."""
    guessed, busy = service(engine=replace(ENGINE, guessed=True)), signals(fleet(2, 2, running=50.0, kv_use=0.5))
    first = decide(guessed, busy, Memory())
    assert first.slots is None
    assert first.desired == decide(service(), busy, Memory()).desired, "sizes go by the guess meanwhile"
    step = PRIOR.decode_step_seconds(50, 5000.0)
    points = [fits.decode_point(0.5, 50, step, 0.0)] * fits.ENOUGH_SAMPLES
    measured = Memory(learnt=Learnt(decode=fits.learn(NOTHING, points, 5.0)))
    assert decide(guessed, busy, measured).slots == 95


def test_the_scheduler_words_are_passed_on() -> None:
    words = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    stuck = replica("p1", "prefill", Phase.UNSCHEDULABLE, since=NOW - UNSCHEDULABLE_SECONDS - 1, words=words)
    for age in (2.0, None):  # known from the API, whatever Prometheus says
        decision = decide(service(), signals((*fleet(1, 1), stuck), rate=30_000.0, sample_age=age), Memory())
        assert [(w.pod, w.words) for w in decision.withdrawn] == [("p1", words)]
        assert decision.remove == ("p1",)
        assert decision.pools == {"prefill": 1, "decode": 1}


def test_newest_starting_goes_first_then_the_least_loaded() -> None:
    pods = (
        replica("busy", "prefill", outstanding_tokens=9000.0, running=3.0),
        replica("idle", "prefill"),
        replica("old", "prefill", Phase.STARTING, since=NOW - 50),
        replica("new", "prefill", Phase.STARTING, since=NOW - 10),
        replica("d", "decode"),
    )
    spec, memory = service(), Memory()
    for tick in range(40):
        decision = decide(spec, signals(pods, at=NOW + 5 * tick / 40), memory)
        memory = decision.memory
    decision = decide(spec, signals(pods, at=NOW + 300), memory)
    assert decision.remove == ("new", "old", "idle")

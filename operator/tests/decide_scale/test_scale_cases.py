"""Public failures of comparable autoscalers, as far as they are about deciding; those about reading Prometheus are in
`observe_metrics`. Each row of `autoscaler_cases.json` names its source; each test below asserts its right outcome.

Two are design choices of ours: A36 (no cap on the change of one decision: all that is missing starts at once, and maxima
and budget bound it) and the minimum of 1 for every role (no scale to zero).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scale_worlds import ENGINE, NOW, PRIOR, fleet, replica, service, signals, total
from steelyard.decide.scale import bounds
from steelyard.decide.scale.decision import Decision, LimitedBy, Memory
from steelyard.decide.scale.law import decide
from steelyard.decide.scale.signals import Limits, Phase, RoleLimits, Service, Signals

Input = dict[str, Any]
CASES = {case["id"]: case for case in json.loads((Path(__file__).parent / "autoscaler_cases.json").read_text("utf-8"))}
CHECKS: dict[str, Callable[[Input], None]] = {}


def case(name: str) -> Callable[[Callable[[Input], None]], Callable[[Input], None]]:
    def take(check: Callable[[Input], None]) -> Callable[[Input], None]:
        CHECKS[name] = check
        return check

    return take


@pytest.mark.parametrize("name", sorted(CASES), ids=lambda name: f"{name} {CASES[name]['source'].split()[0]}")
def test_case(name: str) -> None:
    CHECKS[name](CASES[name]["input"])


def run(spec: Service, seen: Signals, seconds: float, memory: Memory | None = None) -> Decision:
    """Decide every 5 s on the same picture, and act on nothing."""
    decision = decide(spec, seen, memory or Memory())
    for tick in range(1, round(seconds / 5) + 1):
        decision = decide(spec, replace(seen, time=seen.time + 5 * tick), decision.memory)
    return decision


@case("A01")
def idle_is_confirmed_zero(given: Input) -> None:
    state, least = given["state"], given["min"]
    pods = fleet(state["prefill"], state["decode"])
    spec = service(prefill=(least["prefill"], 9), decode=(least["decode"], 9))
    assert run(spec, signals(pods), 30).pools == state  # within the window
    assert run(spec, signals(pods), 150).pools == least
    unknown = signals(pods, arrivals=None, uncached_rate=None, request_rate=None)
    assert run(spec, unknown, 600).pools == state


@case("A02")
def demand_after_a_pause_is_sized_at_once(given: Input) -> None:
    rate, prompt = given["req_rate"][4], given["isl"][4]
    pods = fleet(1, 1)
    spec = service()
    quiet = run(spec, signals(pods, mean_uncached=float(prompt)), 60)
    busy = signals(pods, rate=10.0 * rate * prompt, at=NOW + 65)
    assert decide(spec, busy, quiet.memory).desired == decide(spec, busy, Memory()).desired
    assert decide(spec, busy, quiet.memory).desired["prefill"] > 10 * rate * prompt / 12_000


@case("A05")
def lost_targets_hold(given: Input) -> None:
    pods = fleet(given["state"]["prefill"], given["state"]["decode"])
    decision = run(service(), signals(pods, sample_age=None), 600)
    assert decision.pools == {"prefill": 6, "decode": 10}
    assert decision.limited_by is LimitedBy.METRICS_STALE


@case("A07")
@case("A15")
def an_unknown_replica_is_not_idle(given: Input) -> None:
    """Documented choice: it is taken to run as many as the others, and nothing shrinks meanwhile."""
    known = replica("d-0", "decode", running=10.0, waiting=12.0, kv_use=0.1)
    silent = replica("d-1", "decode", running=None, waiting=None, kv_use=None)
    pods = (replica("p-0", "prefill"), replica("p-1", "prefill"), known, silent)
    decision = run(service(), signals(pods), 300)
    assert decision.pools == {"prefill": 2, "decode": 2}
    assert not decision.remove
    assert run(service(), signals((*pods[:3], replace(silent, running=0.0, kv_use=0.0))), 300).remove


@case("A08")
def the_budget_grows_nothing(given: Input) -> None:
    weights = given["accelerators_per_replica"]
    limits = Limits({r: RoleLimits(1, 20, weights[r]) for r in weights}, accelerators=given["budget"]["accelerators"])
    fitted = bounds.fit(given["desired"], given["desired"], limits, lambda role, size: 1 / (1 + size))
    assert fitted.sizes == {"prefill": 2, "decode": 1}
    assert fitted.limited_by is LimitedBy.BUDGET


@case("A10")
def an_unknown_cost_stops_growth(given: Input) -> None:
    asked = {"prefill": 1, "decode": given["desired"]["decode"]}
    current = {"prefill": 1, "decode": given["objects"][0]["spec"]["decode"]["replicas"]["min"]}
    counted = {"prefill": RoleLimits(1, 20, 1), "decode": RoleLimits(3, 20, 2)}
    limits = Limits(counted, accelerators=given["budget"]["accelerators"] + 1)  # one for prefill, 8 left for decode
    assert bounds.fit(asked, current, limits, lambda role, size: 0.0).sizes["decode"] == 4
    unread = replace(limits, roles={**counted, "decode": RoleLimits(3, 20, None)})
    fitted = bounds.fit(asked, current, unread, lambda role, size: 0.0)
    assert fitted.sizes["decode"] == 3
    assert fitted.limited_by is LimitedBy.UNKNOWN_COST


@case("A13")
def starting_replicas_are_capacity(given: Input) -> None:
    spec = service(engine=replace(ENGINE, start_seconds=float(given["pod_start_s"])))
    pods, memory, asked = fleet(1, 1), Memory(), []
    for tick, _ in enumerate(given["queue_depth"]):
        at = NOW + given["interval_s"] * tick
        decision = decide(spec, signals(pods, rate=60_000.0, at=at), memory)
        memory = decision.memory
        missing = {pool: number - sum(p.pool == pool for p in pods) for pool, number in decision.pools.items()}
        new = ((pool, i) for pool, number in missing.items() for i in range(number))
        pods = (*pods, *(replica(f"{pool}{tick}{i}", pool, Phase.STARTING, since=at) for pool, i in new))
        asked.append(total(decision))
    assert asked[0] > 2
    assert set(asked) == {asked[0]}


@case("A14")
@case("A48")
def the_living_are_counted(given: Input) -> None:
    """The number of replicas comes from the pods and Deployments; series of pods that are gone cannot get in here."""
    decision = run(
        service(), signals((replica("p-0", "prefill"), replica("d-0", "decode", running=20.0, kv_use=0.2))), 300
    )
    assert decision.pools == {"prefill": 1, "decode": 1}


@case("A23")
def a_prompt_heavy_load_grows_prefill_alone(given: Input) -> None:
    work, kv_use = given["workload"], given["decode"]["kv_usage"]
    state = given["state"]
    pods = fleet(state["prefill"], state["decode"], running=30.0, kv_use=kv_use)
    seen = signals(
        pods,
        rate=float(work["rps"] * work["isl"]),
        request_rate=float(work["rps"]),
        generated_rate=float(work["rps"] * work["osl"]),
        prefill_queue=float(given["prefill"]["queue"]),
        mean_uncached=float(work["isl"]),
    )
    decision = decide(service(), seen, Memory())
    assert decision.desired["prefill"] >= 8
    assert decision.desired["decode"] == 1


@case("A24")
def idle_ticks_change_nothing(given: Input) -> None:
    decision = run(service(), signals(fleet(given["state"]["prefill"], given["state"]["decode"])), 5.0 * given["ticks"])
    assert decision.pools == given["state"]


@case("A25")
def one_pod_without_an_address_stops_nothing(given: Input) -> None:
    first, second = given["pods"]
    pods = (
        replica("p-0", "prefill"),
        replica(first["name"], "decode", running=1.0, kv_use=first["kv_usage"]),
        replica(second["name"], "decode", Phase.STARTING),
    )
    decision = run(service(), signals(pods), 300)
    assert decision.remove == (second["name"],)
    assert decision.pools == {"prefill": 1, "decode": 1}


@case("A28")
def a_rollout_never_leaves_the_bounds(given: Input) -> None:
    old = [replica(f"old{i}", "decode", revision="1") for i in range(given["min"])]
    new = [replica(f"new{i}", "decode", Phase.STARTING, revision="2") for i in range(2)]
    spec = service(decode=(given["min"], 9))
    asked = {"prefill": 1, "decode": given["min"]}
    decision = run(spec, signals((replica("p-0", "prefill"), *old, *new), asked=asked), 600)
    assert decision.pools == asked
    assert decision.desired["decode"] == given["min"]


@case("A29")
def surge_pods_are_no_load(given: Input) -> None:
    old, new = given["pods"]
    pods = (
        replica("p-0", "prefill"),
        replica("old", "decode", running=old["load"] * 100, kv_use=0.1),
        replica("new", "decode", Phase.STARTING, running=new["load"]),
    )
    asked = {"prefill": 1, "decode": given["spec_replicas"]}
    assert decide(service(), signals(pods, asked=asked), Memory()).pools == asked


@case("A30")
def a_crashing_revision_is_not_raised_to_the_maximum(given: Input) -> None:
    running = [replica(f"old{i}", "decode", revision="1", running=180.0, kv_use=0.4) for i in range(2)]
    crashing = replica("new", "decode", Phase.FAILING, revision="2", words="CrashLoopBackOff")
    pods = (replica("p-0", "prefill"), *running, crashing)
    asked = {"prefill": 1, "decode": given["state"]["decode"] + 1}
    spec = service(decode=(1, given["state"]["max_decode"]), role_change=False)
    decision = run(spec, signals(pods, asked=asked, decode_queue=500.0), 900)
    assert decision.pools["decode"] == 3
    assert decision.limited_by is LimitedBy.START_FAILING


@case("A34")
def waiting_is_part_of_the_signal(given: Input) -> None:
    one = replace(ENGINE, max_sequences=given["spec"]["decode"]["batching"]["maxSequences"])
    pods = (replica("p-0", "prefill"), replica("d-0", "decode", running=1.0, kv_use=0.01))
    decision = decide(service(engine=one), signals(pods, decode_queue=3.0, request_rate=1.0), Memory())
    assert decision.desired["decode"] > 1


@case("A36")
def a_spike_is_bounded_by_maxima_not_by_a_step(given: Input) -> None:
    """There is no forecast that could spike; what did arrive is served at once, up to the maximum, and given up later."""
    most = given["state"]["decode"] + given["max_step"]
    spec = service(decode=(1, most), role_change=False)
    pods = fleet(1, given["state"]["decode"], running=180.0, kv_use=0.36)
    decision = decide(spec, signals(pods, decode_queue=10_000.0), Memory())
    assert decision.desired["decode"] == decision.pools["decode"] == most
    assert decision.limited_by is LimitedBy.MAX


@case("A37")
def a_gap_keeps_the_decision(given: Input) -> None:
    pods = fleet(given["replicas_series"][0], 1)
    first = decide(service(), signals(pods, rate=float(given["load"][0]) * 1000), Memory())
    gap = signals(pods, arrivals=None, uncached_rate=None, at=NOW + 5)
    assert decide(service(), gap, first.memory).pools == {"prefill": 3, "decode": 1}


@case("A40")
def nothing_shrinks_on_a_window_that_was_lost(given: Input) -> None:
    pods = fleet(4, 2)
    unknown = signals(pods, arrivals=None, uncached_rate=None, generated_rate=None)
    assert run(service(), unknown, 600).pools == {"prefill": 4, "decode": 2}


@case("A41")
def limits_rule_at_once(given: Input) -> None:
    """Also where nothing is known of the load."""
    least = given["seq"][2]["patch"]["spec"]["decode"]["replicas"]["min"]
    for age in (2.0, None):
        seen = signals(fleet(1, 1), sample_age=age)
        assert decide(service(decode=(least, 5)), seen, Memory()).pools == {"prefill": 1, "decode": least}
        lower = decide(service(decode=(1, 2), role_change=False), signals(fleet(1, 5), sample_age=age), Memory())
        assert lower.pools == {"prefill": 1, "decode": 2}
    moved = decide(service(decode=(1, 2)), signals(fleet(1, 5)), Memory())
    assert [role for _, role in moved.relabel] == ["prefill"] * 4  # where roles may change they do: decode is idle
    assert moved.pools == {"prefill": 1, "decode": 5}


@case("A42")
def pending_replicas_do_not_pile_up(given: Input) -> None:
    spec = service(decode=(1, 50), accelerators=10, role_change=False)
    running = replica("d-0", "decode", running=180.0, kv_use=0.36)
    pods = (
        replica("p-0", "prefill"),
        running,
        *(replica(f"d-{i}", "decode", Phase.UNSCHEDULABLE) for i in range(1, 9)),
    )
    busy = signals(pods, decode_queue=float(given["concurrency"]))
    assert total(decide(spec, busy, Memory())) == given["accelerators_total"] + 8
    late = decide(spec, replace(busy, time=NOW + 61), Memory())
    assert late.pools == {"prefill": 1, "decode": 1}
    assert {w.pod for w in late.withdrawn} == {f"d-{i}" for i in range(1, 9)}
    after = signals(pods[:2], decode_queue=float(given["concurrency"]), at=NOW + 66)
    again = decide(spec, after, late.memory)
    assert again.pools == {"prefill": 1, "decode": 1}
    assert again.limited_by is LimitedBy.UNSCHEDULABLE


@case("A45")
def exactly_one_goes(given: Input) -> None:
    state = given["state"]
    pods = fleet(state["prefill"], state["decode"])
    spec = service(prefill=(2, 9), decode=(given["patch"]["decode"], 9))
    decision = run(spec, signals(pods), 300)
    assert decision.pools == {"prefill": 2, "decode": 2}
    assert len(decision.remove) == 1


@case("A51")
def what_is_ready_is_worked_with(given: Input) -> None:
    starting = tuple(replica(f"s{i}", "prefill", Phase.STARTING) for i in range(3))
    decision = decide(service(prefill=(5, 20)), signals((*fleet(5, 5), *starting), rate=150_000.0), Memory())
    assert decision.desired["prefill"] > 8
    limits = Limits(
        {"prefill": RoleLimits(5, 9, 8), "decode": RoleLimits(5, 9, 2)}, accelerators=given["cluster"]["accelerators"]
    )
    start = {"prefill": 5, "decode": 5}
    assert bounds.fit(start, start, limits, lambda role, size: 0.0).limited_by is LimitedBy.BUDGET


@case("A53")
def a_restart_counts_what_runs(given: Input) -> None:
    decision = run(service(), signals(fleet(1, 2)), 300)
    assert decision.pools == {"prefill": 1, "decode": 1}


@case("A54")
def whole_numbers_have_no_dead_band(given: Input) -> None:
    held = replace(ENGINE, prior=replace(PRIOR, kv_tokens=5_000_000.0))  # R = 180
    current, wanted = given["current"], given["computed_desired"]
    spec = service(decode=(1, 200), engine=held, role_change=False)
    busy = replica("d", "decode", running=180 * 0.8 * (wanted - 0.5) / current, kv_use=0.03)
    pods = (replica("p-0", "prefill"), *(replace(busy, name=f"d{i}") for i in range(current)))
    assert decide(spec, signals(pods), Memory()).desired["decode"] == wanted


@case("A56")
def the_idle_one_goes(given: Input) -> None:
    pods = tuple(
        replica(one["pod"], "decode", running=float(one["running"]), kv_use=one["running"] / 500)
        for one in given["decode"]
    )
    spec = service(decode=(given["desired"], 9), role_change=False)
    decision = run(spec, signals((replica("p-0", "prefill"), *pods)), 300)
    assert decision.remove == ("d-1",)
    assert decision.pools["decode"] == given["desired"]


def test_every_case_has_its_check() -> None:
    assert set(CHECKS) == set(CASES)

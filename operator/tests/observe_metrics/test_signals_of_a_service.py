"""Readings joined with the pods that exist. Every case is a report about another system's autoscaler, by its id in the
collection of failure cases, with the thread where it was told; the tests assert what must happen here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from steelyard.decide.scale.signals import Passes, Phase, Replica, Signals
from steelyard.observe.readings import NOW as QUERIES
from steelyard.observe.readings import SPANS, Readings, over, span_of
from steelyard.observe.replicas import Engine, Gateway
from steelyard.observe.signals import Kept, Pods, signals

NOW = 10_000.0
TICK = 5.0
STEADY = Kept(pod="p-0", sampled=NOW - 6, gaps=(5.0, 5.0, 5.0))


def engine(name: str, role: str, phase: Phase = Phase.READY, created: float = NOW - 1000, **more: Any) -> Engine:
    since = created + 30 if phase is Phase.READY else created
    replica = Replica(name, more.pop("pool", role), role, "kv", phase, since, **more)
    return Engine(replica, f"uid-{name}", created, marked=False)


P0, D0, D1 = engine("p-0", "prefill"), engine("d-0", "decode"), engine("d-1", "decode")
GATEWAY = Gateway("g-0", "10.0.0.1", NOW - 1000, "uid-g-0")


def pods(*engines: Engine, gateways: tuple[Gateway, ...] = (GATEWAY,), **asked: int) -> Pods:
    return Pods("team-a", "chat", engines or (P0, D0, D1), gateways, asked or {"prefill": 1, "decode": 2})


def readings(change: Mapping[str, Mapping[str, float | None]] | None = None) -> Readings:
    """A healthy service of p-0, d-0, d-1 and g-0, then changed: rows by query and pod (or role, or "" for the service)."""
    rows: dict[str, dict[str, float | None]] = {
        "age": dict.fromkeys(("p-0", "d-0", "d-1", "g-0"), 2.0),
        "targets": {"": 4},
        "running": {"p-0": 1, "d-0": 10, "d-1": 6},
        "waiting": {"p-0": 0, "d-0": 0, "d-1": 0},
        "kv_use": {"p-0": 0.1, "d-0": 0.5, "d-1": 0.3},
        "queued_requests": {"prefill": 3, "decode": 1},
        "queued_tokens": {"prefill": 900, "decode": 10},
        "ttft_judged": {"true": 95, "false": 5},
        "arrivals": {"": 240},
        "mean_uncached": {"": 700},
        "mean_prompt": {"": 800},
        "mean_output": {"": 200},
        "outstanding": {"p-0": 1200, "d-0": 0, "d-1": 0},
        "samples": dict.fromkeys(("p-0", "d-0", "d-1", "g-0"), 4),
        "generated": {"p-0": 2, "d-0": 300, "d-1": 200},
        "inflow": {"p-0": 0, "d-0": 0.2, "d-1": -0.1},
        "step_seconds": {"d-0": 0.03, "d-1": 0.02},
        "prefills": {"p-0": 2},
        "prefill_seconds": {"p-0": 0.3},
        "computed": {"p-0": 1400, "d-0": 2},
        "arrived": {"": 2},
        "uncached": {"": 1500},
    }
    for name, found in (change or {}).items():
        rows[name] = rows[name] | found
    assert rows.keys() == QUERIES.keys() | over(20).keys()
    service = ("team-a", "chat")
    vectors = {
        name: {(*service, *((key,) if key else ())): value for key, value in found.items() if value is not None}
        for name, found in rows.items()
    }
    spans = {span: {name: vectors[name] for name in over(20)} for span in SPANS}
    return Readings({name: vectors[name] for name in QUERIES}, spans)


def seen(
    change: Mapping[str, Mapping[str, float | None]] | None = None,
    of: Pods | None = None,
    arrivals: tuple[float, ...] | None = None,
    kept: Kept = STEADY,
) -> Signals:
    return signals(of or pods(), readings(change), arrivals, kept, NOW, TICK)[0]


def replica(found: Signals, name: str) -> Replica:
    return next(each for each in found.replicas if each.name == name)


def test_a_healthy_service_is_known_in_all_its_parts() -> None:
    found = seen()
    assert (found.sample_age, found.scrape_interval) == (2.0, 5.0)
    assert (found.request_rate, found.uncached_rate) == (2.0, 1500.0)
    assert found.generated_rate == 500.0, "tokens of decode replicas; a prefill's first token is not decoding"
    assert found.decode_inflow == pytest.approx(0.1)
    assert (found.prefill_queue, found.decode_queue, found.prefill_queue_tokens) == (3.0, 1.0, 900.0)
    assert (found.ttft_met, found.ttft_judged) == (95.0, 100.0)
    assert (found.mean_uncached, found.mean_prompt, found.mean_output) == (700.0, 800.0, 200.0)
    assert replica(found, "d-0").running == 10
    assert replica(found, "p-0").outstanding_tokens == 1200
    assert replica(found, "d-1").step_seconds == 0.02
    assert replica(found, "p-0").passes == Passes(tokens=700.0, seconds=0.3, count=10.0)
    assert replica(found, "d-0").passes is None, "the one token that decode computes again is no prefill"


def test_exact_windows_come_before_rates() -> None:
    arrivals = (0.0,) * 900 + (100.0,) * 60
    found = seen(arrivals=arrivals)
    assert found.arrivals == arrivals
    assert found.uncached_rate == 6000 / 15
    assert found.mean_uncached == 6000 / 240, "per request of the same four minutes"


PAST_US: Mapping[str, Mapping[str, float | None]] = {name: {"": 0} for name in ("arrivals", "arrived", "uncached")}

CASES: tuple[tuple[str, str, dict[str, Any], dict[str, Any]], ...] = (
    (
        "A01",
        "ai-dynamo/dynamo#3131 Planner skips adjustments due to NaN metrics when no load is present",
        {
            "change": {
                "step_seconds": {"d-0": None, "d-1": None},
                "prefill_seconds": {"p-0": None},
                "arrived": {"": 0},
                "uncached": {"": 0},
                "generated": {"p-0": 0, "d-0": 0, "d-1": 0},
            }
        },
        {"request_rate": 0.0, "uncached_rate": 0.0, "generated_rate": 0.0},  # a confirmed zero, and no latency at all
    ),
    (
        "A01b",
        "the same, where the count is unknown as well: nothing may be taken for idle",
        {"change": {"arrived": {"": None}, "uncached": {"": None}, "generated": {"d-0": None}}},
        {"request_rate": None, "uncached_rate": None, "generated_rate": None},
    ),
    (
        "A02",
        "ai-dynamo/dynamo#11296 fix(planner): handle zero-traffic metrics",
        {
            "change": {name: {"": None} for name in ("mean_uncached", "mean_prompt", "mean_output")},
            "kept": replace(STEADY, mean_uncached=2900.0, mean_prompt=3000.0, mean_output=300.0),
        },
        {"mean_uncached": 2900.0, "mean_prompt": 3000.0, "mean_output": 300.0},
    ),
    (
        "A05",
        "kedacore/keda#3065 Prometheus scaler - add option to consider null values as errors",
        {"change": {name: {} for name in QUERIES}, "empty": True},
        {
            "sample_age": 6.0,  # of what was seen last: it counts for some seconds, and then no more
            "request_rate": None,
            "generated_rate": None,
            "prefill_queue": None,
            "ttft_judged": None,
        },
    ),
    (
        "A07",
        "prometheus/prometheus#13221 NaN values in histogram quantile for new observations",
        {"of": pods(P0, D0, engine("d-new", "decode", created=NOW - 8)), "change": {
            "age": {"d-new": 1.0}, "running": {"d-new": 7}, "waiting": {"d-new": 0}, "samples": {"d-new": 1},
            "generated": {"d-new": 3.0},
        }},
        {"generated_rate": None, "d-new.running": 7, "d-new.step_seconds": None},
    ),
    (
        "A07b",
        "a young pod without work is not in the way",
        {"of": pods(P0, D0, engine("d-new", "decode", created=NOW - 8)), "change": {
            "age": {"d-new": 1.0}, "running": {"d-new": 0}, "samples": {"d-new": 1},
        }},
        {"generated_rate": 300.0},
    ),
    (
        "A14",
        "llm-d/llm-d-autoscaling#368 Manage stale metrics coming from deleted Pods",
        {"of": pods(P0, D0, prefill=1, decode=1), "change": {"kv_use": {"d-1": 0.95}, "running": {"d-1": 60}}},
        {"names": ["p-0", "d-0"], "asked": {"prefill": 1, "decode": 1}, "generated_rate": 300.0},
    ),
    (
        "A14b",
        "the same name again (StatefulSet): a sample from before the pod's creation is of its ancestor",
        {"of": pods(P0, engine("d-0", "decode", created=NOW - 10)), "change": {"age": {"d-0": 60.0}}},
        {"d-0.running": None, "d-0.kv_use": None},
    ),
    (
        "A15",
        "llm-d/llm-d-autoscaling#1543 treat missing KV/queue metrics as saturated, not empty",
        {"change": {"age": {"d-1": None}, "running": {"d-1": None}, "waiting": {"d-1": None}, "kv_use": {"d-1": None},
                    "generated": {"d-1": None}, "samples": {"d-1": None}}},
        {"d-1.kv_use": None, "d-1.waiting": None, "generated_rate": None, "decode_queue": None, "d-0.running": 10},
    ),
    (
        "A19",
        "kserve/kserve#5701 EPP `model_server_pod` label has `-rank-0` suffix: rows about other names are never joined",
        {"change": {"running": {"d-1": None, "d-1-rank-0": 9}}},
        {"d-1.running": None},
    ),
    (
        "A25",
        "vllm-project/aibrix#617 KPA Reconciler error: a pod without an address spoils nobody else's reading",
        {"of": pods(P0, D0, engine("d-1", "decode", Phase.UNSCHEDULABLE), prefill=1, decode=2), "change": {
            name: {"d-1": None} for name in ("age", "running", "waiting", "kv_use", "samples", "generated", "inflow")
        }},
        {"d-1.running": None, "d-0.running": 10, "generated_rate": 300.0, "decode_queue": 1.0},
    ),
    (
        "A37",
        "Yelp/paasta#3034 Handle missing metrics: the number of replicas is the API server's, whatever is scraped",
        {"change": {"age": {"d-0": None, "d-1": None}}},
        {"asked": {"prefill": 1, "decode": 2}, "names": ["p-0", "d-0", "d-1"]},
    ),
    (
        "A40",
        "volcano-sh/kthena#1042 treat counters as rates: unknown until a whole window was seen",
        {"kept": Kept()},
        {"generated_rate": None, "request_rate": None, "p-0.passes": None, "d-0.running": 10},
    ),
    (
        "A48",
        "llm-d guides/workload-autoscaling: series of removed endpoints, exporter alive",
        {"of": pods(P0, D0), "change": {"waiting": {"p-1": 9000, "p-2": 8000, "p-3": 7000}}},
        {"prefill_queue": 3.0},
    ),
    (
        "A53",
        "kubeai-project/kubeai#383 Operator looses overview of running models: a new pod counts before its first request",
        {"of": pods(P0, D0, engine("d-2", "decode")), "kept": Kept()},
        {"names": ["p-0", "d-0", "d-2"]},
    ),
    (
        "gauges of one pod are old",
        "a scrape that hangs: its last values are from another time",
        {"change": {"age": {"d-1": 40.0}}},
        {"d-1.running": None, "d-0.running": 10, "decode_queue": None},
    ),
    (
        "one scrape failed",
        "the target is down at this moment, and its newest values are a few seconds old: they still tell what is now",
        {"change": {"age": {"d-1": None}}},
        {"d-1.running": 6, "decode_queue": 1.0, "generated_rate": 500.0, "sample_age": 2.0},
    ),
    (
        "nothing was ever sampled",
        "no age at all",
        {"change": {"age": dict.fromkeys(("p-0", "d-0", "d-1", "g-0"))}, "kept": Kept()},
        {"sample_age": None},
    ),
    (
        "a gateway is young",
        "its counters hold only a part of the window: the sum over gateways is unknown",
        {"of": pods(gateways=(GATEWAY, Gateway("g-1", "10.0.0.2", NOW - 6, "uid-g-1"))), "change": {"samples": {"g-1": 1}}},
        {"request_rate": None, "uncached_rate": None, "generated_rate": 500.0},
    ),
    (
        "a gateway was never sampled",
        "what it has sent to a replica is missing in the sum: the sum is unknown, not small",
        {"of": pods(gateways=(GATEWAY, Gateway("g-1", "10.0.0.2", NOW - 2, "uid-g-1")))},
        {"p-0.outstanding_tokens": None, "p-0.running": 1},
    ),
    (
        "nothing was judged yet",
        "the gateway is scraped and has no such series before the first request",
        {"change": {"ttft_judged": {"true": None, "false": None}}},
        {"ttft_met": 0.0, "ttft_judged": 0.0},
    ),
    (
        "no gateway of ours is ready",
        "arrivals are what the prefill replicas finish",
        {"of": pods(gateways=())},
        {"request_rate": 2.0, "uncached_rate": 1400.0, "mean_uncached": 700.0, "prefill_queue": 0.0, "by_engines": False},
    ),
    (
        "another router",
        "no gateway of ours has counted a request in its four minutes, and prefill replicas work: arrivals are what these finish",
        {"arrivals": (0.0,) * 960, "change": PAST_US},
        {"arrivals": None, "request_rate": 2.0, "uncached_rate": 1400.0, "mean_uncached": 700.0, "by_engines": True,
         "p-0.prefill_rate": 1400.0, "d-0.prefill_rate": None},
    ),
    (
        "hopeless prompts alone",
        "the windows leave them out, the counter does not: they came through our gateway",
        {"arrivals": (0.0,) * 960},
        {"by_engines": False, "request_rate": 2.0},
    ),
    (
        "another router, and a young replica",
        "what it does is not known yet: nothing is, but the requests still come past us",
        {"arrivals": (0.0,) * 960, "change": PAST_US, "of": pods(P0, D0, engine("p-1", "prefill", created=NOW - 5)),
         "kept": replace(STEADY, passed_by=True)},
        {"by_engines": True, "arrivals": None, "uncached_rate": None},
    ),
    (
        "another router, and a gateway that is down",
        "what came past it comes past it still",
        {"change": PAST_US, "of": pods(gateways=()), "kept": replace(STEADY, passed_by=True)},
        {"by_engines": True, "uncached_rate": 1400.0},
    ),
    (
        "a gateway counts again",
        "the other router is gone",
        {"arrivals": (0.0,) * 959 + (9.0,), "change": PAST_US, "kept": replace(STEADY, passed_by=True)},
        {"by_engines": False, "uncached_rate": 9.0 / 15},
    ),
    (
        "idle behind our gateway",
        "the same where no replica works: nothing arrives",
        {"arrivals": (0.0,) * 960, "change": {**PAST_US, "prefills": {"p-0": 0}}},
        {"arrivals": (0.0,) * 960, "request_rate": 0.0, "uncached_rate": 0.0, "by_engines": False},
    ),
    (
        "roles are the API server's",
        "a pod born in decode that prefills now counts where it works",
        {"of": pods(P0, D0, engine("d-1", "prefill", pool="decode"))},
        {"generated_rate": 300.0},
    ),
)  # fmt: skip


@pytest.mark.parametrize(("case", "source", "given_", "expected"), CASES, ids=[case[0] for case in CASES])
def test_what_is_read(case: str, source: str, given_: dict[str, Any], expected: dict[str, Any]) -> None:
    if given_.pop("empty", False):
        found = signals(pods(), Readings({name: {} for name in QUERIES}, {20: {}}), None, STEADY, NOW, TICK)[0]
    else:
        found = seen(**given_)
    for name, value in expected.items():
        pod, dot, attribute = name.partition(".")
        if name == "names":
            assert [each.name for each in found.replicas] == value, source
        elif dot:
            assert getattr(replica(found, pod), attribute) == value, source
        else:
            assert getattr(found, name) == value, source


def test_the_scrape_interval_is_measured_not_believed() -> None:
    """Samples fifteen seconds apart, looked at every five."""
    kept = Kept()
    for tick in range(12):
        now = NOW + 5 * tick
        age = now % 15 + 1
        ages = dict.fromkeys(("p-0", "d-0", "d-1", "g-0"), age)
        _, kept = signals(pods(), readings({"age": ages}), None, kept, now, TICK)
    assert kept.interval == pytest.approx(15.0)
    assert span_of(kept.interval) == 60


def test_the_interval_outlives_one_long_gap() -> None:
    """Prometheus was away for a minute: one long distance does not make the interval long."""
    kept = STEADY
    for at in (NOW + 60, NOW + 65, NOW + 70):
        _, kept = signals(pods(), readings({"age": {"p-0": 1.0}}), None, kept, at, TICK)
        assert kept.interval == pytest.approx(5.0)


@pytest.mark.parametrize(
    ("interval", "span"),
    [(None, 20), (1.0, 20), (5.0, 20), (5.6, 20), (5.8, 60), (15.0, 60), (30.0, 120), (60.0, 240), (300, 240)],
)
def test_a_span_holds_four_scrapes(interval: float | None, span: int) -> None:
    """Scrapes of every five seconds that come a tenth of a second late do not make the span another one."""
    assert span_of(interval) == span


def test_a_scrape_interval_that_has_just_changed_makes_nothing_unknown() -> None:
    """Rates over another span are asked for from the next tick on; until then those that were asked for are read."""
    before = replace(STEADY, sampled=NOW - 12, gaps=(5.0,))
    found, kept = signals(pods(), Readings(readings().now, {20: readings().spans[20]}), None, before, NOW, TICK)
    assert (span_of(before.interval), span_of(kept.interval)) == (20, 60)
    for each in found.replicas:
        assert each.running is not None


GAUGES = ("age", "running", "waiting", "kv_use", "samples", "generated", "inflow", "step_seconds")
rows = st.dictionaries(
    st.sampled_from(GAUGES),
    st.dictionaries(st.sampled_from(("d-0", "d-1")), st.none(), min_size=1),
)


@given(rows)
def test_what_is_missing_is_never_a_number_smaller_than_the_truth(missing: dict[str, dict[str, float | None]]) -> None:
    """However rows vanish, a sum is either what it is with all of them, or unknown."""
    whole, found = seen(), seen(missing)
    for name in ("generated_rate", "decode_inflow", "decode_queue"):
        value, true = getattr(found, name), getattr(whole, name)
        assert value is None or value == true, name
    for each, true_replica in zip(found.replicas, whole.replicas, strict=True):
        for name in ("running", "waiting", "kv_use", "outstanding_tokens", "step_seconds"):
            assert getattr(each, name) in (None, getattr(true_replica, name)), name


def test_what_cannot_be_answered_is_unknown_and_leaves_the_rest() -> None:
    whole = readings()
    lost = ("queued_requests", "waiting")
    spans = {span: {name: v for name, v in found.items() if name not in lost} for span, found in whole.spans.items()}
    found, _ = signals(pods(), Readings(whole.now, spans, {"waiting": "down"}), None, STEADY, NOW, TICK)
    assert (found.prefill_queue, found.decode_queue) == (None, None)
    assert found.generated_rate == 500.0

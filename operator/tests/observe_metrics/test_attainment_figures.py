"""Attainment from judged requests, from engines' histograms where there is no gateway, and what status says of it."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from operator_bodies import service, simulated
from steelyard.decide.attained import Attained, Latency, objectives, objectives_met
from steelyard.decide.scale.signals import Objectives, Phase, Replica
from steelyard.observe.attainment import WINDOWS, Figures, attained, queries, read, window_of
from steelyard.observe.histograms import Histogram
from steelyard.observe.prometheus import Query, Unanswered, Vector
from steelyard.observe.replicas import Engine, Gateway
from steelyard.observe.signals import Pods

SERVICE = ("team-a", "chat")
PROMISED = Objectives(ttft=1.0, tpot=0.05, attainment=0.95)
GATEWAY = Gateway("g", "10.0.0.1", 0.0, "uid-g")
GRID = (0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, math.inf)


def engine(name: str, role: str) -> Engine:
    return Engine(Replica(name, role, role, "kv", Phase.READY, 0.0), name, 0.0, marked=False)


def pods(gateways: tuple[Gateway, ...] = (GATEWAY,), roles: dict[str, str] | None = None) -> Pods:
    roles = roles or {"p": "prefill", "d": "decode"}
    return Pods(*SERVICE, tuple(engine(name, role) for name, role in roles.items()), gateways, {})


def within(bound: float, amount: float = 10.0) -> Histogram:
    """All observed in the bucket that ends at `bound`."""
    return tuple((edge, amount if edge >= bound else 0.0) for edge in GRID)


def figures(**given: Any) -> Figures:
    empty: dict[str, Any] = {"judged": {}, "ttft": {}, "tpot": {}, "whole": {}, "first": {}, "step": {}}
    return Figures(**(empty | {name: {SERVICE: value} for name, value in given.items()}))


def test_judged_requests_are_counted() -> None:
    judged = {("true", "true"): 90.0, ("true", "false"): 4.0, ("false", "true"): 5.0, ("false", "false"): 1.0}
    found = attained(pods(), figures(judged=judged, ttft=within(0.5), tpot=within(0.05)), PROMISED)
    assert found is not None
    assert (found.requests, found.met, found.ttft.met, found.tpot.met) == (100.0, 0.9, 0.94, 0.95)
    assert found.ttft.percentiles[0] == pytest.approx(0.375)


def test_nothing_judged_is_unknown_and_neither_zero_nor_one() -> None:
    assert attained(pods(), figures(), PROMISED) is None
    assert attained(pods(), figures(judged={("true", "true"): 0.0}), PROMISED) is None


def test_without_a_gateway_ttft_is_prefill_and_the_first_step_of_decode() -> None:
    whole = {("p",): within(0.5), ("d",): within(2.0)}
    first = {("p",): within(0.5), ("d",): within(0.1)}
    step = {("d",): within(0.05), ("p",): within(2.0)}
    found = attained(pods(gateways=()), figures(whole=whole, first=first, step=step), PROMISED)
    assert found is not None
    assert found.requests is None
    assert found.ttft.met == pytest.approx(1.0), "half a second of prefill and a tenth for the hand-off"
    assert found.tpot.met == pytest.approx(1.0), "what the prefill pod calls its time per token is nobody's"
    slow = attained(pods(gateways=()), figures(whole={("p",): within(2.0)}, first=first, step=step), PROMISED)
    assert slow is not None
    assert slow.ttft.met == pytest.approx(0.0)
    assert slow.met == pytest.approx(0.0)


def test_roles_are_those_of_now_whatever_the_pods_are_called() -> None:
    whole, first = {("a",): within(0.5)}, {("b",): within(0.1)}
    swapped = pods(gateways=(), roles={"a": "decode", "b": "prefill"})
    found = attained(swapped, figures(whole=whole, first=first, step={}), PROMISED)
    assert found is None


def test_an_aggregated_replica_tells_its_ttft_itself() -> None:
    mine = pods(gateways=(), roles={"a": "aggregated"})
    found = attained(mine, figures(whole={}, first={("a",): within(0.5)}, step={("a",): within(0.05)}), PROMISED)
    assert found is not None
    assert (found.ttft.met, found.met) == (1.0, pytest.approx(1.0))


def test_one_query_each_for_all_services_and_a_window_that_fails_is_left_out() -> None:
    asked: list[str] = []

    def ask(query: Query) -> Vector:
        asked.append(query.text)
        if "[900s]" in query.text:
            raise Unanswered("too much")
        return {(*SERVICE, "true", "true"): 5.0} if query.labels[-1] == "tpot_met" else {}

    with ThreadPoolExecutor(2) as pool:
        found = read(ask, {300, 900}, pool)
    assert set(found) == {300}
    assert found[300].judged == {SERVICE: {("true", "true"): 5.0}}
    assert len(asked) == 2 * len(queries(300))


@pytest.mark.parametrize(
    ("seconds", "window"), [(30, 60), (60, 60), (61, 300), (300, 300), (4000, 21_600), (1e6, 86_400)]
)
def test_the_shortest_window_that_holds(seconds: float, window: int) -> None:
    assert window_of(seconds) == window
    assert window in WINDOWS


GOALS = service(simulated({"objectives": {"timeToFirstToken": "500ms", "attainment": 95}}))
KNOWN = Attained(200, 0.953, Latency(0.97, (0.2101, 0.46, 1.234)), Latency(None, (None, None, None)))


def test_status_has_rounded_figures_and_leaves_out_what_is_not_known() -> None:
    assert objectives(KNOWN) == {
        "attainment": 95.3,
        "timeToFirstToken": {"attainment": 97.0, "p50": "210ms", "p95": "460ms", "p99": "1.23s"},
    }
    assert objectives(None) == {}


@pytest.mark.parametrize(
    ("met", "status", "reason"),
    [(0.953, "True", "Attained"), (0.9, "False", "Missed"), (None, "Unknown", "NotMeasured")],
)
def test_the_condition_compares_with_the_promise(met: float | None, status: str, reason: str) -> None:
    found = Attained(200, met, KNOWN.ttft, KNOWN.tpot)
    verdict = objectives_met(GOALS, found)
    assert (verdict.status, verdict.reason.value) == (status, reason)
    assert "TTFT 500ms for 95 % of requests over 5m" in verdict.message


def test_nothing_promised_is_nothing_kept() -> None:
    assert objectives_met(service(simulated({"objectives": {}})), KNOWN).reason.value == "NoObjectives"

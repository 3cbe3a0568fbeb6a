"""What Prometheus reads of a service: its conditions, its promise, its accelerators; nothing stays of one that is gone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from scaled_world import ScaledWorld
from steelyard.observe.resources import INFERENCE_SERVICE
from steelyard.run import metrics

BOUNDS = {"prefill": {"replicas": {"min": 1, "max": 8}}, "decode": {"replicas": {"min": 1, "max": 8}}}
KEY, CHAT = ("team-a", "talk"), ("team-a", "chat")
CONDITION = "steelyard_condition"


def series(name: str, key: tuple[str, str]) -> dict[tuple[str, ...], float]:
    """The samples of a gauge for one service, by its other labels."""
    mine = dict(zip(("namespace", "service"), key, strict=True))
    return {
        tuple(value for label, value in sample.labels.items() if label not in mine): sample.value
        for family in metrics.REGISTRY.collect()
        for sample in family.samples
        if sample.name == name and mine.items() <= sample.labels.items()
    }


@pytest.fixture(autouse=True)
def _gone() -> Iterator[None]:
    """Nothing of these services is known, whatever tests of before have left: the metrics are the process's."""
    for key in (KEY, CHAT):
        metrics.forget_service(*key)
    yield
    metrics.forget_service(*KEY)


def told(kind: str, status: str, reason: str) -> dict[str, object]:
    return {"type": kind, "status": status, "reason": reason}


@pytest.mark.parametrize(
    ("given", "then", "because"),
    [
        ([("True", "Serving")], {("Available", "Serving"): 1}, "True is 1"),
        ([("False", "GatewayNotReady")], {("Available", "GatewayNotReady"): 0}, "False is 0"),
        ([("Unknown", "NotMeasured")], {}, "what is unknown has no value"),
        ([("True", "Serving"), ("Unknown", "NotMeasured")], {}, "and what was known before is not told any more"),
        (
            [("True", "Serving"), ("False", "DecodeNotReady")],
            {("Available", "DecodeNotReady"): 0},
            "one series a condition: the reason before has none",
        ),
        ([("True", "Serving")] * 2, {("Available", "Serving"): 1}, "saying it again changes nothing"),
    ],
)
def test_a_condition_is_one_series(
    given: list[tuple[str, str]], then: dict[tuple[str, ...], float], because: str
) -> None:
    for status, reason in given:
        metrics.show_conditions(*KEY, [told("Available", status, reason)])
    assert series(CONDITION, KEY) == then, because


def test_a_service_that_is_gone_and_comes_back_is_told_anew() -> None:
    conditions = [told("Available", "True", "Serving"), told("Accepted", "True", "Valid")]
    metrics.show_conditions(*KEY, conditions)
    metrics.forget_service(*KEY)
    assert series(CONDITION, KEY) == {}
    metrics.show_conditions(*KEY, conditions)
    assert series(CONDITION, KEY) == {("Available", "Serving"): 1, ("Accepted", "Valid"): 1}


def test_a_tick_tells_what_is_promised_and_what_is_used() -> None:
    made = ScaledWorld(BOUNDS | {"autoscaling": {"mode": "Auto", "budget": {"accelerators": 6}}})
    made.look()
    made.tick(4)
    assert series("steelyard_accelerators", CHAT) == {("used",): 2, ("budget",): 6}
    assert series("steelyard_objective_attainment_ratio", CHAT) == {(): 0.95}
    seconds = series("steelyard_objective_seconds", CHAT)
    assert seconds.keys() == {("ttft",), ("tpot",)}
    assert seconds[("ttft",)] > seconds[("tpot",)] > 0
    fresh = {key: value for key, value in series(CONDITION, CHAT).items() if key[0] == "MetricsFresh"}
    assert fresh == {("MetricsFresh", "Fresh"): 1}
    metrics.forget_service(*CHAT)
    assert not any(series(name, CHAT) for name in ("steelyard_accelerators", "steelyard_objective_seconds"))


def test_a_replica_that_stands_by_tells_nothing_of_services() -> None:
    """What it knew while it led is old, and Prometheus would take it for one more answer."""
    metrics.show_conditions(*KEY, [told("Available", "True", "Serving")])
    metrics.show_age(*KEY, 3.0)
    metrics.forget_services()
    assert series(CONDITION, KEY) == {} == series("steelyard_metrics_age_seconds", KEY)
    metrics.show_conditions(*KEY, [told("Available", "True", "Serving")])
    assert series(CONDITION, KEY) == {("Available", "Serving"): 1}


def test_a_mode_that_judges_no_limit_tells_none() -> None:
    """A budget was reached; then the mode is Off: the alert on it must end."""
    made = ScaledWorld(BOUNDS | {"autoscaling": {"mode": "Auto", "budget": {"accelerators": 2}}})
    made.look()
    made.tick(4)
    made.arriving = 500_000.0
    made.tick(3)
    assert ("ScalingLimited", "BudgetReached") in series(CONDITION, CHAT)
    service = made.api.get(INFERENCE_SERVICE, *CHAT)
    service["spec"]["autoscaling"]["mode"] = "Off"
    made.api.put(service)
    made.tick()
    assert not [key for key in series(CONDITION, CHAT) if key[0] == "ScalingLimited"]
    assert ("MetricsFresh", "Fresh") in series(CONDITION, CHAT)


def test_the_two_authors_of_a_status_do_not_speak_for_each_other() -> None:
    """A reconcile knows nothing of what is measured, and a tick nothing of the spec."""
    made = ScaledWorld(BOUNDS)
    made.look()
    made.tick(4)
    told_by_tick = {key: value for key, value in series(CONDITION, CHAT).items() if key[0] == "MetricsFresh"}
    assert told_by_tick
    made.look()
    assert told_by_tick.items() <= series(CONDITION, CHAT).items()
    assert ("Accepted", "Valid") in series(CONDITION, CHAT)


def test_a_service_deleted_during_a_tick_leaves_nothing() -> None:
    made = ScaledWorld(BOUNDS)
    made.look()
    made.tick(4)
    ask = made.ask

    def deleted_meanwhile(query: object) -> object:
        made.fleet.forget(CHAT)
        metrics.forget_service(*CHAT)
        return ask(query)  # type: ignore[arg-type]

    made.ask = deleted_meanwhile  # type: ignore[method-assign, assignment]
    made.autoscaler.tick(made.now)
    assert not any(
        series(name, CHAT) for name in (CONDITION, "steelyard_metrics_age_seconds", "steelyard_accelerators")
    )

"""The autoscaler over an API server and a Prometheus of dictionaries: what it writes, what it leaves alone, what it says."""

from __future__ import annotations

from typing import Any

import pytest
from scaled_world import ScaledWorld
from steelyard.api.labels import ADMISSION, ROLE
from steelyard.decide import slots
from steelyard.observe.client import Unreachable

BOUNDS = {"prefill": {"replicas": {"min": 1, "max": 8}}, "decode": {"replicas": {"min": 1, "max": 8}}}
HEAVY = 120_000.0  # uncached tokens a second: several replicas of prefill


def world(mode: str = "Auto", **scaling: Any) -> ScaledWorld:
    made = ScaledWorld(BOUNDS | {"autoscaling": {"mode": mode, **scaling}})
    made.look()
    made.tick(4)  # samples fill the span
    return made


def test_at_rest_nothing_is_changed_and_status_is_written_once_a_minute() -> None:
    """llm-d/llm-d-autoscaling#380 (A24): twenty idle ticks leave 1/1."""
    made = world()
    made.api.writes.clear()
    made.tick(20)
    assert made.asked() == {"prefill": 1, "decode": 1}
    assert not [write for write in made.api.writes if "/scale" in write or write.startswith("merge")]
    assert made.api.writes.count("InferenceService/chat/status") <= 3, "100 seconds"
    assert made.condition("MetricsFresh") == ("True", "Fresh")
    assert made.status()["decision"]["action"] == "no change"


def test_a_burst_is_answered_within_one_tick_and_told_with_its_reasons() -> None:
    made = world()
    made.arriving = HEAVY
    made.tick()
    grown = made.asked()["prefill"]
    assert grown > 1
    status = made.status()
    assert status["decision"]["action"].startswith(f"prefill 1→{grown}")
    assert status["decision"]["because"]
    assert status["decision"]["applied"] is True
    assert status["decision"]["prefill"] == grown
    assert status["history"][0]["action"] == status["decision"]["action"]
    assert "learnt" not in status["history"][0]
    assert [reason for reason, _ in made.api.events].count("ScaleDecided") == 1


def test_pending_replicas_are_not_asked_for_twice() -> None:
    """ai-dynamo/dynamo#9774 (A13): one scale-up, although the pods take their time."""
    made = ScaledWorld(BOUNDS, start_seconds=50)
    made.look()
    made.tick(4)
    made.arriving = HEAVY
    made.tick()
    grown = made.asked()
    made.tick(8)
    assert made.asked() == grown


def test_when_the_burst_is_over_it_shrinks_once_and_takes_the_marked_pods() -> None:
    made = world()
    made.arriving = HEAVY
    made.tick(10)
    grown = made.asked()["prefill"]
    made.arriving = 0.0
    sizes = []
    for _ in range(60):
        made.tick()
        sizes.append(made.asked()["prefill"])
    assert sizes[-1] == 1
    assert sizes == sorted(sizes, reverse=True), "down in steps that never go up again"
    assert grown > sizes[-1]
    marks = [write for write in made.api.writes if write.startswith("merge Pod/chat-prefill")]
    assert len(marks) >= grown - 1


@pytest.mark.parametrize("mode", ["Recommend", "Off"])
def test_other_modes_write_no_number_and_touch_no_pod(mode: str) -> None:
    made = world(mode)
    made.api.scale_by_hand("chat-prefill", 3)
    made.arriving = HEAVY
    made.api.writes.clear()
    made.tick(12)
    assert made.asked() == {"prefill": 3, "decode": 1}
    assert not [write for write in made.api.writes if "/scale" in write or write.startswith("merge")]
    decision = made.status().get("decision")
    if mode == "Off":
        assert decision is None
    else:
        assert decision is not None
        assert decision["applied"] is False
        assert decision["prefill"] > 3
        assert "ScaleRecommended" in {reason for reason, _ in made.api.events}


def test_a_recommendation_that_is_then_carried_out_is_told_again() -> None:
    made = world("Recommend")
    made.arriving = HEAVY
    made.tick(2)
    made.api.edit(
        "InferenceService", "chat", {"spec": {"autoscaling": {"mode": "Auto"}}, "metadata": {"generation": 2}}
    )
    made.tick(2)
    history = made.status()["history"]
    assert [entry["applied"] for entry in history[:2]] == [True, False]
    assert history[0]["action"] == history[1]["action"]


def test_prometheus_gone_holds_says_so_once_and_recovers() -> None:
    """kedacore/keda#3065 (A05): no answer is not no load."""
    made = world()
    made.arriving = HEAVY
    made.tick(8)
    grown = made.asked()
    made.api.events.clear()
    made.down, made.arriving = "does not answer", 0.0
    made.tick(40)
    assert made.asked() == grown, "minutes without a single measurement"
    assert made.condition("MetricsFresh") == ("False", "PrometheusUnreachable")
    assert made.status()["decision"]["limitedBy"] == "MetricsStale"
    assert [reason for reason, _ in made.api.events].count("MetricsLost") == 1
    made.down = None
    made.tick(6)
    assert made.condition("MetricsFresh") == ("True", "Fresh")
    assert [reason for reason, _ in made.api.events].count("MetricsBack") == 1


def test_bounds_are_kept_without_any_measurement() -> None:
    """kubeai-project/kubeai#193 (A41): a raised minimum is met at once, whatever Prometheus says."""
    made = world()
    made.down = "does not answer"
    made.api.edit(
        "InferenceService", "chat", {"spec": {"decode": {"replicas": {"min": 2}}}, "metadata": {"generation": 2}}
    )
    made.tick(2)
    assert made.asked()["decode"] == 2


def test_ready_replicas_that_prometheus_does_not_know_are_told_after_three_ticks() -> None:
    """llm-d/llm-d#2310 (A18): every health sign stayed green while all queries matched nothing."""
    made = world()
    made.missing = {name for (kind, _, name) in made.api.objects if kind == "Pod"}
    made.tick(2)
    assert made.condition("MetricsFresh")[0] == "Unknown"
    made.tick(2)
    assert made.condition("MetricsFresh") == ("False", "NoMatchingSeries")
    assert made.status()["decision"]["limitedBy"] == "MetricsStale"


def test_a_replica_without_samples_keeps_everything_that_is_there() -> None:
    """llm-d/llm-d-autoscaling#1543 (A15): one failed scrape must not make a scale-down look safe."""
    made = world()
    made.arriving = HEAVY
    made.tick(10)
    grown = made.asked()
    made.missing = {pod["metadata"]["name"] for pod in made.pods() if pod["metadata"]["labels"][ROLE] == "decode"}
    made.arriving = 0.0
    made.tick(40)
    assert made.asked() == grown
    assert made.condition("MetricsFresh") == ("True", "PartlyUnknown")


def test_a_new_operator_goes_on_from_what_runs() -> None:
    """kubeai-project/kubeai#383 (A53), volcano-sh/kthena#1042 (A40): nothing is scaled down on a window that is not there."""
    made = world()
    made.arriving = HEAVY
    made.tick(10)
    grown = made.asked()
    made.restart()
    made.tick(6)
    assert made.asked()["prefill"] >= grown["prefill"] - 1
    made.arriving = 0.0
    made.restart()
    made.tick(6)
    assert made.asked() == grown, "idle for half a minute only: the windows begin with what runs"
    made.tick(60)
    assert made.asked() == {"prefill": 1, "decode": 1}


def test_a_budget_that_is_reached_is_a_condition_and_an_event() -> None:
    made = world(budget={"accelerators": 3})
    made.arriving = HEAVY
    made.tick(4)
    assert sum(made.asked().values()) == 3
    assert made.condition("ScalingLimited") == ("True", "BudgetReached")
    assert [reason for reason, _ in made.api.events].count("ScalingLimited") == 1


def test_a_paused_or_refused_service_is_left_alone() -> None:
    made = world()
    made.api.edit("InferenceService", "chat", {"metadata": {"annotations": {"serving.steelyard.dev/paused": "true"}}})
    made.arriving = HEAVY
    made.look()
    made.api.writes.clear()
    made.tick(5)
    assert not [write for write in made.api.writes if "/scale" in write]


def test_a_write_that_fails_is_decided_anew_and_leaves_other_services_alone() -> None:
    made = world()
    made.arriving = HEAVY
    made.look()
    made.api.fail_next = Unreachable(504, "gateway timeout")
    made.autoscaler.tick(made.now)
    assert made.asked()["prefill"] == 1
    made.tick()
    assert made.asked()["prefill"] > 1


def test_a_service_without_an_autoscaler_loses_what_one_had_written() -> None:
    made = world()
    made.tick(2)
    assert "decision" in made.status()
    made.reconcile = type(made.reconcile)(made.api, made.reconcile.site, "operator-1", 300, None)
    made.look()
    status = made.status()
    assert "decision" not in status
    assert {c["type"] for c in status["conditions"]}.isdisjoint({"MetricsFresh", "ScalingLimited"})
    assert made.condition("ObjectivesMet") == ("Unknown", "NotMeasured")


def test_a_role_change_is_one_label_on_the_pod_that_was_seen() -> None:
    made = world()
    names = [pod["metadata"]["name"] for pod in made.pods()]
    seen = made.fleet.views()["team-a", "chat"]
    assert {engine.replica.name for engine in seen.pods.engines} == set(names)
    assert {engine.replica.role for engine in seen.pods.engines} == {"prefill", "decode"}
    pod = made.pods()[0]
    made.api.edit("Pod", pod["metadata"]["name"], {"metadata": {"labels": {ROLE: "decode"}}})
    made.look()
    assert made.status()["decode"]["desired"] == (2 if pod["metadata"]["name"].startswith("chat-prefill") else 1)


def told_slots(made: ScaledWorld) -> int | None:
    return slots.read(made.api.body("ConfigMap", "chat-gateway")["data"].get(slots.FILE))


def test_gateways_are_told_how_many_sequences_a_decode_replica_may_hold() -> None:
    """At first they go by maxSequences; a replica past R sequences misses TPOT for all of them."""
    made = world()
    spec = made.fleet.views()["team-a", "chat"].service
    assert spec is not None
    told = told_slots(made)
    assert told is not None
    assert 1 <= told <= (spec.spec.batching_of("decode").max_sequences or 0)
    settings = made.api.body("ConfigMap", "chat-gateway")
    assert made.fleet.views()["team-a", "chat"].admission is not None
    gateways = [
        body for (kind, _, name), body in made.api.objects.items() if kind == "Pod" and name.startswith("chat-x")
    ]
    assert gateways
    assert {body["metadata"]["annotations"][ADMISSION] for body in gateways} == {str(told)}
    made.api.writes.clear()
    made.tick(6)
    assert not [write for write in made.api.writes if write.startswith("merge") or "ConfigMap" in write], "no fight"
    assert made.api.body("ConfigMap", "chat-gateway") == settings


@pytest.mark.parametrize("change", ["by hand", "deleted"])
def test_what_gateways_are_told_is_put_back_and_the_settings_beside_it_stay(change: str) -> None:
    made = world()
    told, settings = told_slots(made), made.api.body("ConfigMap", "chat-gateway")["data"]["gateway.json"]
    made.running["decode"] = 2.0  # a limit that keeps nobody waiting would be left as it is
    made.tick(4)
    if change == "by hand":
        made.api.edit("ConfigMap", "chat-gateway", {"data": {slots.FILE: slots.text(1)}})
    else:
        made.api.remove("ConfigMap", "chat-gateway")
    made.reconcile.rest.told(("team-a", "chat"), "ConfigMap")
    made.tick(4)
    assert told_slots(made) == told
    assert made.api.body("ConfigMap", "chat-gateway")["data"]["gateway.json"] == settings


@pytest.mark.parametrize("mode", ["Recommend", "Off"])
def test_in_other_modes_gateways_keep_what_they_were_told_last(mode: str) -> None:
    made = world(mode)
    assert told_slots(made) is None, "nothing yet: maxSequences rules"
    was = world()
    told = told_slots(was)
    was.api.edit("InferenceService", "chat", {"spec": {"autoscaling": {"mode": mode}}, "metadata": {"generation": 2}})
    was.tick(4)
    assert told_slots(was) == told


def test_contexts_that_grow_are_followed_with_pauses() -> None:
    made = world()
    before = told_slots(made)
    made.running["decode"] = 40.0
    made.kv_use = 0.9
    made.api.writes.clear()
    made.tick(12)
    after = told_slots(made)
    assert before is not None
    assert after is not None
    assert after < before
    assert made.api.writes.count("merge ConfigMap/chat-gateway") <= 12 * 5 / slots.PAUSE_SECONDS

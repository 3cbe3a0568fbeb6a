"""The autoscaler's ticks with known peaks, standby replicas and rollouts that wait to be judged."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from scaled_world import START, ScaledWorld
from steelyard.api.labels import POOL
from steelyard.decide.rollout_pause import WINDOW_SECONDS
from steelyard.observe import attainment
from steelyard.observe.attainment import queries

BOUNDS = {"prefill": {"replicas": {"min": 1, "max": 8}}, "decode": {"replicas": {"min": 1, "max": 8}}}


def world(**spec: Any) -> ScaledWorld:
    made = ScaledWorld(BOUNDS | spec)
    made.look()
    made.tick(4)
    return made


def test_a_peak_raises_the_minimum_while_it_lasts_and_the_load_decides_afterwards() -> None:
    begins = datetime.fromtimestamp(START + 120, UTC)
    made = world(autoscaling={"schedule": [{"cron": f"{begins.minute} * * * *", "duration": "5m", "decode": 3}]})
    assert made.asked() == {"prefill": 1, "decode": 1}
    made.tick(25)
    assert made.asked() == {"prefill": 1, "decode": 3}
    assert made.status()["decision"]["decode"] == 3
    made.tick(120)
    assert made.asked() == {"prefill": 1, "decode": 1}


def test_other_modes_write_nothing_for_a_peak() -> None:
    made = world(autoscaling={"mode": "Off", "schedule": [{"cron": "* * * * *", "duration": "5m", "decode": 3}]})
    made.api.writes.clear()
    made.tick(10)
    assert not [write for write in made.api.writes if "/scale" in write]


def test_standby_replicas_are_made_and_stay() -> None:
    made = world(autoscaling={"standby": 1, "roleChange": "Never"})
    made.tick(30)
    assert made.asked() == {"prefill": 2, "decode": 2}
    assert any("stand by beyond the need" in words for words in made.status()["decision"]["because"])


def test_while_pods_are_replaced_pools_only_grow() -> None:
    made = world()
    made.arriving = 120_000.0
    made.tick(10)
    grown = made.asked()["prefill"]
    assert grown > 1
    made.api.edit("InferenceService", "chat", {"spec": {"model": {"uri": "hf://org/other"}}})
    made.arriving = 0.0
    made.tick(90)
    assert made.status()["rollout"]["prefill"] == f"0/{grown}", "the world replaces no pod"
    assert made.asked()["prefill"] == grown
    for pod in made.pods():  # now it has
        name, pool = pod["metadata"]["name"], pod["metadata"]["labels"][POOL]
        template = made.api.body("Deployment", f"chat-{pool}")["spec"]["template"]["metadata"]["labels"]
        made.api.edit("Pod", name, {"metadata": {"labels": template}})
    made.tick(60)
    assert made.asked()["prefill"] == 1


class Judged(ScaledWorld):
    """Gateways judge a hundred requests in each window."""

    met = 1.0

    def __init__(self, spec: dict[str, Any]) -> None:
        self.asked_for: list[str] = []
        super().__init__(spec)

    def ask(self, query: Any) -> Any:
        self.asked_for.append(query.text)
        if query.text != queries(WINDOW_SECONDS)["judged"].text:
            return super().ask(query)
        key = ("team-a", "chat")
        return {(*key, "true", "true"): 100 * self.met, (*key, "false", "true"): 100 * (1 - self.met)}


def test_what_goes_wrong_in_judging_one_rollout_ends_no_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Judged(BOUNDS | {"rollout": {"pauseOnObjectiveLoss": True}})
    made.tick(4)
    made.api.edit("InferenceService", "chat", {"spec": {"model": {"uri": "hf://org/other"}}})
    made.look()
    failed: list[str] = []

    def attained(pods: Any, *_: object) -> None:
        failed.append(pods.service)
        raise ZeroDivisionError

    monkeypatch.setattr(attainment, "attained", attained)
    made.arriving = 120_000.0
    made.tick(2)
    assert failed
    assert made.asked()["prefill"] > 1, "the rest of the tick was done"


def test_a_rollout_that_may_wait_is_judged_at_every_tick_and_no_other() -> None:
    made = Judged(BOUNDS | {"rollout": {"pauseOnObjectiveLoss": True}})
    made.tick(4)
    asked = queries(WINDOW_SECONDS)["judged"].text
    assert asked not in made.asked_for
    made.api.edit("InferenceService", "chat", {"spec": {"model": {"uri": "hf://org/other"}}})
    made.tick(3)
    assert made.status()["rollout"]["objectivesWereMet"] is True
    made.met = 0.7
    made.tick(2)
    made.look()
    assert "70.0 % of 100 requests" in made.status()["rollout"]["paused"]
    made.asked_for.clear()
    made.tick()
    assert made.asked_for.count(asked) == 1

"""A rollout by the whole loop over an API server of dictionaries: what Deployments are told, and what the status says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from memory_api import MemoryApi
from operator_bodies import SITE, merged, service_body, simulated
from steelyard.api.labels import POOL, REVISION
from steelyard.build.pacing import NEVER_SECONDS
from steelyard.catalog.accelerators import ACCELERATORS
from steelyard.decide.rollout_pause import Judged
from steelyard.observe.client import Body
from steelyard.run.fleet import Fleet
from steelyard.run.reconcile import Reconciler, Result

KEY = ("team-a", "chat")
BOTH = {"prefill": {"replicas": {"min": 2, "max": 2}}, "decode": {"replicas": {"min": 2, "max": 2}}}
OTHER = {"model": {"uri": "hf://org/other"}}
GOALS = {"objectives": {"timeToFirstToken": "1s", "attainment": 90}, "rollout": {"pauseOnObjectiveLoss": True}}


class World:
    """One service whose pods are made and removed by hand, and a clock."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.api = MemoryApi()
        for accelerator in ACCELERATORS.values():
            self.api.put(accelerator.manifest())
        self.api.put(service_body(simulated(merged(BOTH, spec))))
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.fleet = Fleet()
        self.names = 0
        self.look()
        for pool in ("prefill", "decode"):
            for _ in range(2):
                self.add(pool)
        self.look()

    def look(self, seconds: float = 1) -> Result:
        self.now += timedelta(seconds=seconds)
        for kind, _, name in list(self.api.objects):  # the Deployment controller is quick
            if kind == "Deployment":
                generation = self.api.body(kind, name)["metadata"]["generation"]
                self.api.edit(kind, name, {"status": {"observedGeneration": generation}})
        return Reconciler(self.api, SITE, "operator-1", 300, self.fleet)(*KEY, 0, self.now)

    def respec(self, spec: dict[str, Any]) -> None:
        self.api.edit("InferenceService", "chat", {"spec": spec})
        self.look()
        self.look()

    def deployment(self, pool: str) -> Body:
        found: Body = self.api.body("Deployment", f"chat-{pool}")["spec"]
        return found

    def step(self, pool: str) -> tuple[Any, Any, int]:
        """maxSurge, maxUnavailable, minReadySeconds."""
        spec = self.deployment(pool)
        bounds = spec["strategy"]["rollingUpdate"]
        return bounds["maxSurge"], bounds["maxUnavailable"], spec.get("minReadySeconds", 0)

    def add(self, pool: str, ready: bool = True) -> str:
        """A pod of the present template."""
        self.names += 1
        name = f"chat-{pool}-{self.names}"
        condition = {
            "type": "Ready",
            "status": "True" if ready else "False",
            "lastTransitionTime": self.now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        labels = self.deployment(pool)["template"]["metadata"]["labels"]
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "team-a", "labels": dict(labels)},
            "spec": {},
            "status": {"phase": "Running", "conditions": [condition]},
        }
        self.api.put(pod)
        return name

    def take_old(self, pool: str) -> None:
        """Remove one pod of an earlier template."""
        wanted = self.deployment(pool)["template"]["metadata"]["labels"][REVISION]
        for (kind, _, name), body in self.api.objects.items():
            labels = body["metadata"].get("labels") or {}
            if kind == "Pod" and labels.get(POOL) == pool and labels[REVISION] != wanted:
                self.api.remove("Pod", name)
                return

    def status(self) -> Body:
        found: Body = self.api.body("InferenceService", "chat")["status"]
        return found

    def progressing(self) -> tuple[str, str]:
        return next((c["reason"], c["message"]) for c in self.status()["conditions"] if c["type"] == "Progressing")

    def judge(self, percent: float, requests: float = 100) -> None:
        self.fleet.judge(KEY, Judged(percent * requests / 100, requests, self.now.timestamp()))


AT_REST = ("25%", "25%", 0)


def test_both_roles_go_step_by_step_and_end_with_the_users_own_bounds() -> None:
    world = World({})
    assert world.step("prefill") == AT_REST
    world.api.events.clear()
    world.respec(OTHER)
    assert {world.step(pool) for pool in ("prefill", "decode")} == {(1, 0, NEVER_SECONDS)}
    assert world.status()["rollout"]["prefill"] == "0/2"
    world.add("prefill")
    world.look()
    assert world.step("prefill") == (1, 0, NEVER_SECONDS), "no decode pod could work with the new one yet"
    assert world.progressing() == ("RollingOut", "new replicas that are ready: prefill 1/2, decode 0/2")
    world.add("decode")
    world.look()
    assert {world.step(pool) for pool in ("prefill", "decode")} == {(1, 1, NEVER_SECONDS)}
    for pool in ("prefill", "decode"):
        world.take_old(pool)
        world.add(pool)
    world.look()
    assert {world.step(pool) for pool in ("prefill", "decode")} == {(1, 2, NEVER_SECONDS)}
    world.take_old("prefill")
    world.look()
    assert world.step("prefill") == AT_REST
    world.take_old("decode")
    world.look()
    assert world.step("decode") == AT_REST
    assert "rollout" not in world.status()
    reasons = [reason for reason, _ in world.api.events]
    assert reasons.count("ChildrenChanged") == 1, "its steps are no news"


def test_the_autoscaler_hears_of_a_rollout_from_the_look_that_begins_it() -> None:
    """A tick between that look and the next one would give a role to a pod that was started for the other one only."""
    world = World({})

    def rolling() -> bool:
        world.look()
        seen = world.fleet.find(KEY)
        assert seen is not None
        return seen.rolling

    assert not rolling()
    world.api.edit("InferenceService", "chat", {"spec": OTHER})
    assert [rolling(), rolling()] == [True, True]
    for pool in ("prefill", "decode"):
        for _ in range(2):
            world.take_old(pool)
            world.add(pool)
    assert not rolling()


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_pod_that_is_over_keeps_no_rollout_going(phase: str) -> None:
    """Evicted, or refused by the kubelet (UnexpectedAdmissionError): its object stays, with the labels of its time."""
    world = World({})
    world.api.edit("Pod", world.add("decode", ready=False), {"status": {"phase": phase, "reason": "Evicted"}})
    world.respec(OTHER)
    for pool in ("prefill", "decode"):
        for _ in range(2):
            world.take_old(pool)
            world.add(pool)
    world.look()
    assert "rollout" not in world.status()
    assert {world.step(pool) for pool in ("prefill", "decode")} == {AT_REST}
    assert world.status()["decode"]["starting"] == 0


def test_what_the_step_says_is_put_back_when_somebody_changes_it() -> None:
    world = World({})
    world.respec(OTHER)
    world.api.edit("Deployment", "chat-decode", {"spec": {"strategy": {"rollingUpdate": {"maxUnavailable": 2}}}})
    world.look()
    assert world.step("decode") == (1, 0, NEVER_SECONDS)


def test_nobody_goes_before_the_last_step_was_seen() -> None:
    """What a Deployment still takes away by an earlier step, or an earlier spec, would be counted as serving."""
    world = World({})
    world.respec(OTHER)
    for pool in ("prefill", "decode"):
        world.add(pool)
    world.api.edit("Deployment", "chat-decode", {"status": {"observedGeneration": 1}})
    Reconciler(world.api, SITE, "operator-1", 300, world.fleet)(*KEY, 0, world.now)
    assert {world.step(pool) for pool in ("prefill", "decode")} == {(1, 0, NEVER_SECONDS)}
    world.look()
    assert {world.step(pool) for pool in ("prefill", "decode")} == {(1, 1, NEVER_SECONDS)}


def test_the_stored_revision_holds_the_users_own_bounds() -> None:
    world = World({})
    world.respec(OTHER)
    revisions = [body for (kind, _, _), body in world.api.objects.items() if kind == "ControllerRevision"]
    children = max(revisions, key=lambda body: int(body["revision"]))["data"]["children"]
    pools = [child for child in children if child["kind"] == "Deployment" and POOL in child["metadata"]["labels"]]
    held = [child["spec"]["strategy"]["rollingUpdate"] for child in pools]
    assert held == [{"maxUnavailable": "25%", "maxSurge": "25%"}] * 2


def test_a_service_is_looked_at_in_full_while_pods_are_replaced() -> None:
    """At rest a look leaves out what nobody changed; a step must not wait for the next full one."""
    world = World({})
    world.respec(OTHER)
    result = world.look()
    assert result.again_after == 300, "pods' events ask for the next look"
    for pool in ("prefill", "decode"):
        world.add(pool)
    world.look()
    assert world.step("decode")[1] == 1


def lose(world: World) -> None:
    """A rollout in which the objectives are met first and missed then."""
    world.respec(OTHER)
    world.judge(97)
    world.look()
    for pool in ("prefill", "decode"):
        world.add(pool)
    world.judge(80)
    world.look()


def test_a_rollout_waits_while_the_objectives_are_missed_and_says_by_how_much() -> None:
    world = World(GOALS)
    world.respec(OTHER)
    world.look()
    world.judge(97)
    world.look()
    world.api.events.clear()
    for pool in ("prefill", "decode"):
        world.add(pool)
    world.judge(80.4, 250)
    assert world.look().again_after == 5
    reason, message = world.progressing()
    assert reason == "RolloutPaused"
    assert "80.4 % of 250 requests" in message
    assert "90 % are asked" in message
    assert "prefill 0/2, decode 0/2" in message, "new ones count once they have served for a while"
    assert [(r, n) for r, n in world.api.events] == [("RolloutPaused", message)]
    world.look(60)
    assert [world.deployment(pool)["paused"] for pool in ("prefill", "decode")] == [True, True]
    world.judge(79)
    world.look()
    assert world.progressing()[1] == message, "figures that change are no news"


@pytest.mark.parametrize("then", ["met again", "nobody judges", "too few to tell", "another spec"])
def test_a_rollout_that_waits_goes_on(then: str) -> None:
    world = World(GOALS)
    lose(world)
    assert world.progressing()[0] == "RolloutPaused"
    if then == "met again":
        world.judge(90)
    elif then == "too few to tell":
        world.judge(0, 19)
    elif then == "another spec":
        world.respec({"model": {"uri": "hf://org/third"}})
        world.judge(80)
    world.look(200 if then == "nobody judges" else 1)
    assert world.progressing()[0] == "RollingOut"
    assert not world.deployment("decode").get("paused")
    assert "RolloutResumed" in [reason for reason, _ in world.api.events]


@pytest.mark.parametrize("cure", [False, True])
def test_an_edit_that_is_refused_lifts_no_pause(cure: bool) -> None:
    world = World(GOALS)
    lose(world)
    world.respec({"decode": {"replicas": {"min": 5, "max": 2}}})
    [accepted] = [c["status"] for c in world.status()["conditions"] if c["type"] == "Accepted"]
    assert accepted == "False"
    assert world.status()["rollout"].get("paused")
    assert world.deployment("decode")["paused"]
    if cure:
        world.judge(95)
        world.look()
        assert "paused" not in world.status()["rollout"], "while it is refused, too"
    seen = world.fleet.views()[KEY]
    assert seen.service is None, "nothing else is decided"
    assert seen.asks is not None, "what the rollout is judged by"


def test_objectives_that_were_missed_before_keep_nobody_from_the_cure() -> None:
    world = World(GOALS)
    world.respec(OTHER)
    for share in (40, 60):
        world.judge(share)
        world.look()
        assert world.progressing()[0] == "RollingOut"


def test_a_new_replica_serves_for_a_while_before_an_old_one_goes() -> None:
    world = World(GOALS)
    world.respec(OTHER)
    for pool in ("prefill", "decode"):
        world.add(pool)
    world.look()
    assert world.step("decode")[1] == 0
    world.look(46)
    assert world.step("decode")[1] == 1


def test_without_the_setting_nothing_waits() -> None:
    world = World({"objectives": GOALS["objectives"]})
    lose(world)
    assert world.progressing()[0] == "RollingOut"
    assert world.step("decode")[1] == 1


def test_the_setting_needs_an_objective() -> None:
    world = World({})
    world.respec({"rollout": {"pauseOnObjectiveLoss": True}})
    [told] = [c["message"] for c in world.status()["conditions"] if c["type"] == "Accepted"]
    assert "spec.rollout.pauseOnObjectiveLoss: true: no objective is set" in told

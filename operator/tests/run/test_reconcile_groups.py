"""Replicas that span nodes: LeaderWorkerSets are applied, counted, scaled, repaired and pruned like any other pool."""

from __future__ import annotations

from typing import Any

from memory_api import MemoryApi
from operator_bodies import SITE, service_body
from steelyard.catalog.accelerators import ACCELERATORS
from steelyard.observe.replicas import gateway_of
from steelyard.run.fleet import Fleet
from steelyard.run.reconcile import Reconciler
from steelyard.run.rest import Rest
from test_reconcile_loop import World

WIDE = {
    "model": {"uri": "hf://org/model@v1", "servedName": None},
    "engine": {"name": "vllm"},
    "accelerator": "h200",
    "topology": "Aggregated",
    "parallelism": {"tensor": 16},
    "aggregated": {"replicas": {"min": 1, "max": 4, "initial": 2}},
}
NARROW = {"parallelism": {"tensor": 8}}


class Grouped(World):
    """A service whose replicas take two nodes each."""

    def __init__(self, spec: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.api = MemoryApi()
        for accelerator in ACCELERATORS.values():
            self.api.put(accelerator.manifest())
        self.api.put(service_body(WIDE if spec is None else spec))

    def group(self) -> dict[str, Any]:
        return self.api.body("LeaderWorkerSet", "chat-aggregated")

    def kinds(self, kind: str) -> list[str]:
        return [one for one in self.api.kinds() if one.startswith(f"{kind}/")]

    def run_leaders(self, ready: int) -> None:
        """Do the work of LWS: so many replicas, each a leader and a follower."""
        template = self.group()["spec"]["leaderWorkerTemplate"]
        for number in range(ready):
            for index, part in enumerate(("leaderTemplate", "workerTemplate")):
                name = f"chat-aggregated-{number}" + (f"-{index}" if index else "")
                labels = dict(template[part]["metadata"]["labels"])
                meta = {"name": name, "namespace": "team-a", "labels": labels}
                told = [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
                status = {"phase": "Running", "podIP": f"10.0.{number}.{index}", "conditions": told}
                self.api.put({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {}, "status": status})
        self.api.edit(
            "LeaderWorkerSet", "chat-aggregated", {"status": {"readyReplicas": ready, "updatedReplicas": ready}}
        )


def test_it_is_applied_and_gets_its_first_number_from_the_scaler() -> None:
    world = Grouped()
    world.reconcile()
    assert world.kinds("Deployment") == ["Deployment/chat"], "the gateway's alone"
    assert world.group()["spec"]["replicas"] == 2
    managers = {entry["manager"] for entry in world.group()["metadata"]["managedFields"]}
    assert managers == {"steelyard", "steelyard-scaler"}
    world.settle()
    world.reconcile()
    assert world.api.writes == []


def test_replicas_are_counted_by_their_leaders() -> None:
    world = Grouped()
    world.settle()
    world.run_leaders(2)
    world.reconcile()
    status = world.api.body("InferenceService", "chat")["status"]
    assert (status["aggregated"]["ready"], status["ready"]) == (2, "2/2")
    followers = [body for (kind, _, name), body in world.api.objects.items() if kind == "Pod" and name.endswith("-1-1")]
    assert followers
    assert all(gateway_of(body) is None for body in followers), "nobody asks a follower for demand"


def test_bounds_are_kept_and_an_edit_by_hand_is_put_back() -> None:
    world = Grouped()
    world.settle()
    world.api.edit("LeaderWorkerSet", "chat-aggregated", {"spec": {"replicas": 9}})
    world.reconcile()
    assert world.group()["spec"]["replicas"] == 4
    world.api.edit("LeaderWorkerSet", "chat-aggregated", {"spec": {"startupPolicy": "LeaderReady"}})
    world.reconcile()
    assert world.group()["spec"]["startupPolicy"] == "LeaderCreated"
    assert any(reason == "DriftRepaired" and "startupPolicy" in note for reason, note in world.api.events)


def test_one_that_was_deleted_comes_back_also_where_all_was_at_rest() -> None:
    world = Grouped()
    rest = Rest(full_seconds=1e9)
    operator = Reconciler(world.api, SITE, "operator-1", 300, rest=rest)
    for _ in range(4):
        operator("team-a", "chat", 0, world.now)
    world.api.remove("LeaderWorkerSet", "chat-aggregated")
    operator("team-a", "chat", 0, world.now)
    assert world.group()["spec"]["replicas"] == 2


def test_a_pool_that_grows_over_nodes_and_back_changes_its_kind() -> None:
    world = Grouped(WIDE | NARROW)
    world.settle()
    assert world.kinds("LeaderWorkerSet") == []
    world.respec({"parallelism": {"tensor": 16}})
    world.reconcile()
    assert world.kinds("LeaderWorkerSet") == ["LeaderWorkerSet/chat-aggregated"]
    assert world.kinds("Deployment") == ["Deployment/chat"]
    world.respec(NARROW)
    world.reconcile()
    assert world.kinds("LeaderWorkerSet") == []
    assert len(world.kinds("Deployment")) == 2


def test_a_name_that_is_somebody_elses_is_left_alone() -> None:
    world = Grouped()
    theirs = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "spec": {"replicas": 1}}
    world.api.put({**theirs, "metadata": {"name": "chat-aggregated", "namespace": "team-a"}})
    world.reconcile()
    assert world.condition("Accepted") == ("False", "NameTaken")
    assert world.group()["spec"] == {"replicas": 1}


def test_where_the_kind_is_not_installed_the_spec_is_refused_and_what_serves_stays() -> None:
    world = Grouped(WIDE | NARROW)
    world.api.missing = {"LeaderWorkerSet"}
    world.settle()
    before = world.kinds("Deployment")
    assert len(before) == 2
    world.respec({"parallelism": {"tensor": 16}})
    world.reconcile()
    assert world.condition("Accepted") == ("False", "SpansNodes")
    assert "install LeaderWorkerSet" in world.message("Accepted")
    assert world.kinds("Deployment") == before
    world.api.missing = set()
    world.reconcile()
    assert world.condition("Accepted")[0] == "True"
    assert world.kinds("LeaderWorkerSet") == ["LeaderWorkerSet/chat-aggregated"]


def test_a_kind_that_is_taken_away_is_told_and_comes_back_by_itself() -> None:
    world = Grouped()
    world.settle()
    world.api.remove("LeaderWorkerSet", "chat-aggregated")
    world.api.missing = {"LeaderWorkerSet"}
    world.reconcile()
    assert world.condition("Accepted") == ("False", "SpansNodes")
    world.api.missing = set()
    world.reconcile()
    assert world.condition("Accepted")[0] == "True"
    assert world.group()["spec"]["replicas"] == 2


def test_the_autoscaler_hears_which_pools_are_groups() -> None:
    world = Grouped()
    fleet = Fleet()
    operator = Reconciler(world.api, SITE, "operator-1", 300, fleet)
    operator("team-a", "chat", 0, world.now)
    operator("team-a", "chat", 0, world.now)
    seen = fleet.find(("team-a", "chat"))
    assert seen is not None
    assert seen.pods.grouped == {"aggregated"}
    assert seen.pods.asked == {"aggregated": 2}


def test_the_autoscaler_hears_that_leaders_of_an_earlier_spec_are_still_there() -> None:
    """LeaderWorkerSets replace their pods by themselves, and what such a pod was told of its role may hold no more."""
    world = Grouped()
    fleet = Fleet()
    operator = Reconciler(world.api, SITE, "operator-1", 300, fleet)

    def rolling() -> bool:
        operator("team-a", "chat", 0, world.now)
        seen = fleet.find(("team-a", "chat"))
        assert seen is not None
        return seen.rolling

    assert rolling(), "its children are rendered"
    world.run_leaders(2)
    assert not rolling()
    world.respec({"model": {"contextLength": 4096}})
    assert [rolling(), rolling()] == [True, True], "both leaders are old"
    world.run_leaders(1)
    assert rolling(), "one is"
    world.run_leaders(2)
    assert not rolling()


def test_followers_find_their_leader_before_anybody_is_ready() -> None:
    """LWS keeps a Service of its set's name, so ours names the leaders, and followers wait for them while none is ready."""
    world = Grouped()
    world.settle()
    service = world.api.body("Service", "chat-aggregated")["spec"]
    assert service["publishNotReadyAddresses"] is True
    leader = world.group()["spec"]["leaderWorkerTemplate"]["leaderTemplate"]["metadata"]["labels"]
    assert service["selector"].items() <= leader.items()
    world.respec(NARROW)
    world.reconcile()
    assert "publishNotReadyAddresses" not in world.api.body("Service", "chat-aggregated")["spec"]

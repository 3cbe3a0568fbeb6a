"""The whole loop over an API server of dictionaries: what is written, what is not, and what the status says."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from engine_bodies import BASES
from memory_api import MemoryApi
from operator_bodies import SITE, merged, service_body, simulated
from steelyard.api.labels import PAUSED, RENDER, SERVICE
from steelyard.catalog.accelerators import ACCELERATORS
from steelyard.decide.site import Site
from steelyard.observe.client import Denied, Malformed, Unreachable
from steelyard.run.reconcile import Reconciler, Result

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class World:
    """One service, its operator, and a clock."""

    def __init__(self, spec: dict[str, Any] | None = None, **meta: Any) -> None:
        self.api = MemoryApi()
        for accelerator in ACCELERATORS.values():
            self.api.put(accelerator.manifest())
        self.api.put(service_body(simulated(spec), **meta))
        self.now = NOW
        self.faults = 0
        self.site = SITE

    def reconcile(self) -> Result:
        self.now += timedelta(seconds=7)
        operator = Reconciler(self.api, self.site, "operator-1", resync_seconds=300)
        return operator("team-a", "chat", self.faults, self.now)

    def settle(self) -> None:
        self.reconcile()
        self.reconcile()
        self.api.writes.clear()
        self.api.events.clear()

    def respec(self, spec: dict[str, Any], **meta: Any) -> None:
        self.api.edit("InferenceService", "chat", {"spec": spec, "metadata": meta})

    def condition(self, kind: str) -> tuple[str, str]:
        conditions = self.api.body("InferenceService", "chat")["status"]["conditions"]
        return next((c["status"], c["reason"]) for c in conditions if c["type"] == kind)

    def message(self, kind: str) -> str:
        conditions = self.api.body("InferenceService", "chat")["status"]["conditions"]
        return str(next(c["message"] for c in conditions if c["type"] == kind))

    def run_pods(self) -> None:
        """Do the work of the Deployment controller and the kubelets: everything wanted is ready."""
        for (kind, namespace, name), body in list(self.api.objects.items()):
            if kind != "Deployment":
                continue
            count = body["spec"]["replicas"]
            generation = body["metadata"]["generation"]
            done = {"readyReplicas": count, "updatedReplicas": count, "observedGeneration": generation}
            self.api.edit("Deployment", name, {"status": done})
            template = body["spec"]["template"]["metadata"]["labels"]
            for index in range(count):
                pod = {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": f"{name}-{index}", "namespace": namespace, "labels": dict(template)},
                    "spec": {},
                    "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
                }
                self.api.put(pod)


def test_creation_writes_every_child_once_and_scales_to_initial() -> None:
    world = World({"decode": {"replicas": {"min": 1, "max": 4, "initial": 3}}})
    world.reconcile()
    assert {kind.split("/")[0] for kind in world.api.kinds()} >= {
        *("ServiceAccount", "Role", "RoleBinding", "ConfigMap", "Service", "NetworkPolicy"),
        *("PodDisruptionBudget", "Deployment", "ControllerRevision"),
    }
    assert world.api.body("Deployment", "chat-decode")["spec"]["replicas"] == 3
    assert world.api.body("Deployment", "chat-prefill")["spec"]["replicas"] == 1
    assert world.api.body("Deployment", "chat")["spec"]["replicas"] == 2
    assert world.condition("Accepted") == ("True", "Valid")
    assert [reason for reason, _ in world.api.events] == ["ChildrenChanged", "Scaled", "Scaled", "Accepted"], (
        "prefill runs with its one already"
    )


def test_at_rest_nothing_is_written() -> None:
    """kubernetes-client/python#700 (B14): replayed events of one generation write nothing."""
    world = World()
    world.reconcile()
    world.run_pods()
    world.settle()
    for _ in range(3):
        world.reconcile()
    assert world.api.writes == []
    assert world.api.events == []


def test_it_becomes_available_and_says_so_once() -> None:
    world = World()
    world.reconcile()
    assert world.condition("Available") == ("False", "GatewayNotReady")
    world.run_pods()
    world.reconcile()
    assert world.condition("Available") == ("True", "Serving")
    assert world.condition("Progressing") == ("False", "UpToDate")
    status = world.api.body("InferenceService", "chat")["status"]
    assert (status["ready"], status["ratio"], status["observedGeneration"]) == ("2/2", "1:1", 1)
    assert status["url"] == "http://chat.team-a.svc:8000/v1"
    assert world.api.events[-1] == ("Available", "the gateway and every role have a ready pod")


def test_a_service_from_a_finished_operator_is_carried_on_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between creation and scaling: the number was never written, so the next operator writes it."""
    world = World({"decode": {"replicas": {"min": 2, "max": 4}}})
    with monkeypatch.context() as patched:
        patched.setattr("steelyard.run.reconcile.scale", _dies)
        with pytest.raises(RuntimeError):
            world.reconcile()
    assert world.api.body("Deployment", "chat-decode")["spec"]["replicas"] == 1
    world.reconcile()
    assert world.api.body("Deployment", "chat-decode")["spec"]["replicas"] == 2


def _dies(*_: Any, **__: Any) -> None:
    raise RuntimeError("killed here")


@pytest.mark.parametrize(
    ("kind", "name", "change"),
    [
        ("Service", "chat", {"spec": {"selector": {SERVICE: "other"}}}),
        ("Deployment", "chat-decode", {"spec": {"template": {"spec": {"enableServiceLinks": True}}}}),
        ("NetworkPolicy", "chat-engine-kv", {"spec": {"ingress": [{}]}}),
        ("Role", "chat-gateway", {"rules": []}),
        ("ConfigMap", "chat-gateway", {"data": {"gateway.json": "{}"}}),
        ("Service", "chat-decode", {"metadata": {"labels": {SERVICE: None}}}),
    ],
)
def test_an_edit_by_hand_is_put_back_with_an_event(kind: str, name: str, change: dict[str, Any]) -> None:
    world = World()
    world.settle()
    before = world.api.body(kind, name)
    world.api.edit(kind, name, change)
    world.reconcile()
    after = world.api.body(kind, name)
    assert {k: v for k, v in after.items() if k != "metadata"} == {k: v for k, v in before.items() if k != "metadata"}
    assert after["metadata"]["labels"] == before["metadata"]["labels"]
    reason, note = world.api.events[0]
    assert reason == "DriftRepaired"
    assert f"{kind}/{name}" in note


def test_a_deleted_child_comes_back_and_a_leftover_goes() -> None:
    world = World()
    world.settle()
    leftover = world.api.body("ConfigMap", "chat-gateway") | {}
    leftover["metadata"] = {**leftover["metadata"], "name": "chat-old", "uid": "uid-old"}
    world.api.put(leftover)
    world.api.remove("Service", "chat")
    world.reconcile()
    assert "Service/chat" in world.api.kinds()
    assert "ConfigMap/chat-old" not in world.api.kinds()


def test_a_change_of_topology_prunes_the_old_pools() -> None:
    world = World()
    world.settle()
    world.respec({"topology": "Aggregated"})
    world.reconcile()
    deployments = [name for name in world.api.kinds() if name.startswith("Deployment/")]
    assert deployments == ["Deployment/chat", "Deployment/chat-aggregated"]


def test_an_invalid_spec_keeps_the_last_good_children_and_creates_nothing() -> None:
    world = World()
    world.settle()
    before = world.api.kinds()
    world.respec({"accelerator": "h2000", "decode": {"replicas": {"min": 3}}})
    world.reconcile()
    assert world.api.kinds() == before
    assert world.api.body("Deployment", "chat-decode")["spec"]["replicas"] == 1
    assert world.condition("Accepted") == ("False", "UnknownAccelerator")
    assert "spec.accelerator: h2000" in world.message("Accepted")
    assert [reason for reason, _ in world.api.events] == ["Rejected"]
    world.api.remove("Service", "chat")
    world.reconcile()
    assert "Service/chat" in world.api.kinds(), "drift of the last good children is still repaired"
    world.respec({"accelerator": "h200"})
    world.reconcile()
    assert world.condition("Accepted") == ("True", "Valid")


def test_an_upgrade_that_brings_another_engine_takes_nothing_from_a_service_that_runs() -> None:
    """A written version is held against the image only where something is rendered anew."""
    world = World(
        merged(BASES["vllm"], {"engine": {"version": "0.32.0"}, "decode": {"replicas": {"min": 1, "max": 4}}})
    )
    world.settle()
    world.site = replace(SITE, engine_images={"vllm": "mirror/vllm:v0.33.2"})
    world.respec({"decode": {"replicas": {"min": 3}}})
    world.reconcile()
    assert world.condition("Accepted") == ("True", "Valid")
    assert world.api.body("Deployment", "chat-decode")["spec"]["replicas"] == 3
    children = world.api.kinds()
    world.respec({"model": {"contextLength": 8192}})
    world.reconcile()
    assert world.condition("Accepted") == ("False", "InvalidSpec")
    assert "mirror/vllm:v0.33.2" in world.message("Accepted")
    assert world.api.kinds() == children
    world.respec({"engine": {"version": None}})
    world.reconcile()
    assert world.condition("Accepted") == ("True", "Valid")
    [engine] = world.api.body("Deployment", "chat-decode")["spec"]["template"]["spec"]["containers"]
    assert engine["image"] == "mirror/vllm:v0.33.2"


def test_an_invalid_new_service_creates_nothing() -> None:
    world = World({"accelerator": "h2000"})
    result = world.reconcile()
    assert result.outcome == "refused"
    assert [kind for kind in world.api.kinds() if not kind.startswith(("Accelerator/", "InferenceService/"))] == []


def test_paused_changes_nothing_and_shows_it() -> None:
    world = World()
    world.settle()
    world.respec({"topology": "Aggregated"}, annotations={PAUSED: "true"})
    world.api.remove("Service", "chat")
    world.reconcile()
    assert world.api.writes == ["InferenceService/chat/status"]
    assert world.condition("Paused") == ("True", "PauseAnnotation")
    world.api.edit("InferenceService", "chat", {"metadata": {"annotations": None}})
    world.reconcile()
    assert "Deployment/chat-aggregated" in world.api.kinds()
    assert [reason for reason, _ in world.api.events] == ["Paused", "ChildrenChanged", "Resumed"]


def test_an_operator_upgrade_rolls_nothing_until_asked() -> None:
    world = World()
    world.settle()
    world.site = Site(gateway_image="steelyard/gateway:2", engine_image="steelyard/engine:2")
    world.reconcile()
    assert world.api.writes == []
    world.respec({"decode": {"replicas": {"min": 2, "max": 2}}})
    world.reconcile()
    assert _engine_image(world) == "steelyard/engine:1", "bounds do not reach a child, so they render nothing"
    world.api.edit("InferenceService", "chat", {"metadata": {"annotations": {RENDER: "2026-01-02"}}})
    world.reconcile()
    assert _engine_image(world) == "steelyard/engine:2"


def _engine_image(world: World) -> str:
    spec = world.api.body("Deployment", "chat-decode")["spec"]["template"]["spec"]
    return str(spec["containers"][0]["image"])


@pytest.mark.parametrize(
    ("mode", "by_hand", "stays", "because"),
    [
        ("Off", 9, 9, "another autoscaler rules (defilantech/LLMKube#1881, B01)"),
        ("Recommend", 9, 9, "it changes nothing"),
        ("Auto", 9, 4, "above max"),
        ("Auto", 3, 3, "within the bounds"),
    ],
)
def test_replicas_by_mode(mode: str, by_hand: int, stays: int, because: str) -> None:
    world = World({"autoscaling": {"mode": mode}, "decode": {"replicas": {"min": 2, "max": 4}}})
    world.settle()
    world.api.edit("Deployment", "chat-decode", {"spec": {"replicas": by_hand}}, manager="hpa")
    world.reconcile()
    assert world.api.body("Deployment", "chat-decode")["spec"]["replicas"] == stays, because


def test_a_name_that_is_taken_is_refused_before_anything_is_written() -> None:
    world = World()
    world.api.put({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "chat", "namespace": "team-a"}})
    world.reconcile()
    assert world.condition("Accepted") == ("False", "NameTaken")
    assert "Service/chat" in world.message("Accepted")
    assert "Deployment/chat-decode" not in world.api.kinds()


def test_children_of_an_older_service_of_that_name_are_waited_for() -> None:
    world = World()
    world.settle()
    world.api.edit("InferenceService", "chat", {"metadata": {"uid": "uid-2"}, "status": None})
    result = world.reconcile()
    assert result.outcome == "waiting"
    assert result.again_after is not None
    assert result.again_after < 60
    world.api.collect_garbage()
    world.reconcile()
    owners = world.api.body("Deployment", "chat-decode")["metadata"]["ownerReferences"]
    assert [owner["uid"] for owner in owners] == ["uid-2"]


def test_a_deleted_service_leaves_everything_to_its_owner_references() -> None:
    world = World()
    world.settle()
    world.api.remove("InferenceService", "chat")
    result = world.reconcile()
    assert (result.outcome, result.again_after) == ("gone", None)
    assert world.api.writes == []
    world.api.collect_garbage()
    assert [kind for kind in world.api.kinds() if not kind.startswith("Accelerator/")] == []


def test_two_services_of_one_namespace_share_no_child() -> None:
    """ai-dynamo/dynamo (B27): constant Role names made two routers fight."""
    world = World()
    world.settle()
    world.api.put(service_body(simulated(), name="talk", uid="uid-talk"))
    Reconciler(world.api, SITE, "operator-1", 300)("team-a", "talk", 0, NOW)
    world.api.remove("InferenceService", "chat")
    world.api.collect_garbage()
    assert {"Role/talk-gateway", "RoleBinding/talk-gateway", "Deployment/talk"} <= set(world.api.kinds())


def test_what_the_api_server_refuses_is_told_to_the_user() -> None:
    world = World()
    world.api.fail_next = Malformed(422, "Deployment is invalid: spec.template: too odd")
    result = world.reconcile()
    assert result.outcome == "refused"
    assert world.condition("Accepted") == ("False", "InvalidSpec")
    assert "too odd" in world.message("Accepted")
    assert [kind for kind in world.api.kinds() if not kind.startswith(("Accelerator/", "InferenceService/"))] == []


def test_an_unreachable_api_server_is_left_to_the_queue() -> None:
    """zalando-incubator/kopf (B38): a 5xx is tried again with back-off and writes no status."""
    world = World()
    world.api.fail_next = Unreachable(504, "gateway timeout")
    with pytest.raises(Unreachable):
        world.reconcile()
    assert "status" not in world.api.body("InferenceService", "chat")


def test_a_fault_of_ours_shows_after_a_few_and_is_raised() -> None:
    world = World()
    for faults, shown in ((0, False), (1, False), (2, True)):
        world.faults = faults
        world.api.fail_next = ZeroDivisionError("a bug")
        with pytest.raises(ZeroDivisionError):
            world.reconcile()
        assert ("status" in world.api.body("InferenceService", "chat")) is shown
    assert world.condition("Progressing") == ("False", "InternalError")
    assert world.api.events[-1][0] == "ReconcileFailed"


def test_a_terminating_namespace_is_no_failure() -> None:
    """kopf operators retried 11,000 times in a namespace that was going away (B32)."""
    world = World()
    world.api.fail_next = Denied(
        403, "forbidden: unable to create new content in namespace team-a because it is being terminated"
    )
    assert world.reconcile().outcome == "waiting"


def test_missing_rights_are_named() -> None:
    world = World()
    world.api.fail_next = Denied(403, "deployments.apps is forbidden")
    with pytest.raises(Denied):
        world.reconcile()
    assert "rights" in world.message("Progressing")


def test_only_the_latest_revisions_are_kept() -> None:
    world = World()
    for length in (1024, 2048, 4096, 8192, 16384):
        world.respec({"model": {"contextLength": length}})
        world.reconcile()
    world.reconcile()
    revisions = [name for name in world.api.kinds() if name.startswith("ControllerRevision/")]
    assert len(revisions) == 3


def test_going_back_to_an_earlier_spec_brings_its_children_back() -> None:
    """State is rebuilt from children and the API alone (B21): A → B → A ends with A's children in force."""
    world = World({"model": {"contextLength": 1024}})
    world.settle()
    first = world.api.body("Deployment", "chat-decode")["spec"]
    for length in (4096, 1024):
        world.respec({"model": {"contextLength": length}})
        world.reconcile()
    assert world.api.body("Deployment", "chat-decode")["spec"] == first
    world.api.writes.clear()
    world.reconcile()
    assert [write for write in world.api.writes if not write.endswith("/status")] == []

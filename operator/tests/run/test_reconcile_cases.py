"""Reported failures of other operators that no other test of the loop shows."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from engine_bodies import BASES
from operated_world import KEY, World
from operator_bodies import SITE, Body, merged, service_body
from steelyard.decide.plan import plan
from steelyard.observe.snapshot import observe

LARGE = 262_144  # bytes: what the API server allows for all annotations of one object together
OBJECT_LIMIT = 1_500_000  # bytes of one request to etcd


def size(body: Body) -> int:
    return len(json.dumps(body))


def test_a_large_spec_is_in_no_annotation_and_is_written_once() -> None:
    """The last seen spec was kept in an annotation, which it outgrew, and every patch failed (nolar/kopf#1087, B09)."""
    world = World()
    args = [f"--own-{number}={'x' * 900}" for number in range(60)]
    world.create({"engine": {"image": "mine:1", "args": args}})
    service = world.service()
    assert service is not None
    assert size(service) > 50_000
    world.restart()
    world.run()
    assert len(world.children("Deployment")) == 3
    for body in world.api.objects.values():
        assert size(body["metadata"].get("annotations") or {}) < LARGE / 50
        assert size(body) < OBJECT_LIMIT
    world.control()
    world.hear()
    world.run()
    world.api.writes.clear()
    for _ in range(3):
        world.run()
    assert world.api.writes == []


def test_a_restart_that_kubectl_asks_for_is_left_alone() -> None:
    """Rotated credentials changed nothing in running pods (an operator's report, gke-labs/kube-agents#1631, B30): variables from
    Secrets are taken at a start, `kubectl rollout restart` makes one, and the operator does not undo what asks for it."""
    world = World()
    world.create(
        {"engine": {"env": [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}}]}}
    )
    world.restart()
    world.run()
    asked = {"kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z"}
    world.api.edit("Deployment", "chat-decode", {"spec": {"template": {"metadata": {"annotations": asked}}}})
    world.hear()
    world.run()
    template = world.api.body("Deployment", "chat-decode")["spec"]["template"]
    assert template["metadata"]["annotations"].items() >= asked.items()


def test_an_engine_without_an_image_gets_no_pods_until_the_installation_names_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A made-up name would be pulled from whoever has it, and run with the tenant's token."""
    world = World()
    world.create(merged(BASES["tensorrt-llm"], {"engine": {"image": None}}))
    world.restart()
    world.run()
    service = world.service()
    assert service is not None
    [accepted] = [c for c in service["status"]["conditions"] if c["type"] == "Accepted"]
    assert accepted["status"] == "False"
    assert "spec.engine.image" in accepted["message"]
    assert world.children() == []
    named = replace(SITE, engine_images={"tensorrt-llm": "mirror/trt:1"})
    monkeypatch.setattr("operated_world.SITE", named)
    world.restart()
    world.run()
    engines = world.api.body("Deployment", "chat-aggregated")["spec"]["template"]["spec"]["containers"]
    assert engines[0]["image"] == "mirror/trt:1"


def test_a_stale_status_decides_nothing() -> None:
    """Status of an older generation was believed by another controller (ai-dynamo/dynamo#13871, B39)."""
    plans = []
    for status in ({}, {"observedGeneration": 4, "decode": {"desired": 7, "ready": 7}, "ready": "9/9", "ratio": "2:7"}):
        world = World()
        world.api.put(service_body({"engine": {"name": "llama-cpp"}}, generation=5) | {"status": status})
        seen = observe(world.api, *KEY)
        assert seen is not None
        plans.append(plan(seen.snapshot))
    assert plans[0] == plans[1]

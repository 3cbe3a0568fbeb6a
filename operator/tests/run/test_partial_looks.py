"""A look leaves out what is at rest: when it may, what makes it read again, and that nothing is missed for long."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from memory_api import MemoryApi
from operator_bodies import SITE, service_body, simulated
from steelyard.api.labels import PAUSED
from steelyard.catalog.accelerators import ACCELERATORS
from steelyard.decide.snapshot import Revision
from steelyard.observe.client import Body
from steelyard.observe.resources import CHILD_KINDS
from steelyard.observe.snapshot import Settled
from steelyard.run.reconcile import Reconciler
from steelyard.run.rest import RESTING, Left, Rest

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY = ("team-a", "chat")
FULL = 300.0
FOUND = Settled("uid", Revision("r", 1, "hash", ()), "deployments", {})
ALWAYS = {"Deployment", "Pod"}
HELD_TO = {"ControllerRevision"}  # what children are compared with


class World:
    """One service, an operator that remembers, and which kinds its last look read, besides the service."""

    def __init__(self) -> None:
        self.now = 0.0
        self.listed: set[str] = set()
        self.api = MemoryApi()
        for accelerator in ACCELERATORS.values():
            self.api.put(accelerator.manifest())
        self.api.put(service_body(simulated(None)))
        self.api.before = self._called
        self.rest = Rest(FULL, lambda: self.now)
        self.operator = Reconciler(self.api, SITE, "operator-1", FULL, rest=self.rest)
        for _ in range(3):
            self.look()
        assert self.listed == ALWAYS

    def _called(self, verb: str, place: str) -> None:
        if verb == "list":
            self.listed.add(place)
        elif verb == "get" and place.startswith("Accelerator/"):
            self.listed.add("Accelerator")

    def look(self) -> set[str]:
        self.listed.clear()
        self.operator(*KEY, 0, NOW)
        return set(self.listed)

    def annotate(self, name: str, value: str | None) -> None:
        self.api.edit("InferenceService", "chat", {"metadata": {"annotations": {name: value}}})


@pytest.fixture
def world() -> World:
    return World()


def test_what_a_watch_tells_of_is_read_and_repaired(world: World) -> None:
    world.api.edit("ConfigMap", "chat-gateway", {"data": {"gateway.json": "{}"}})
    world.rest.told(KEY, "ConfigMap")
    assert world.look() == {*ALWAYS, *HELD_TO, "ConfigMap"}
    assert world.api.body("ConfigMap", "chat-gateway")["data"]["gateway.json"] != "{}"
    world.rest.told(KEY, "ConfigMap")  # of the repair
    assert world.look() == {*ALWAYS, *HELD_TO, "ConfigMap"}
    assert world.look() == ALWAYS


def test_a_child_that_goes_comes_back(world: World) -> None:
    world.api.remove("Service", "chat")
    world.rest.told(KEY, "Service")
    world.look()
    assert world.api.body("Service", "chat")


def test_what_no_watch_told_of_is_seen_at_the_next_full_look(world: World) -> None:
    world.api.remove("Service", "chat")
    world.now += FULL - 1
    assert world.look() == ALWAYS
    assert "Service/chat" not in world.api.kinds()
    world.now += 1
    assert world.look() == ALWAYS | RESTING
    assert world.api.body("Service", "chat")


def test_other_children_are_compared_with_everything(world: World) -> None:
    world.api.edit("InferenceService", "chat", {"spec": {"objectives": {"timeToFirstToken": "7s"}}})
    assert world.look() == ALWAYS | RESTING
    world.look()
    assert world.look() == ALWAYS


def test_a_paused_service_vouches_for_nothing(world: World) -> None:
    world.annotate(PAUSED, "true")
    world.look()
    world.api.remove("Service", "chat")
    world.rest.told(KEY, "Service")
    world.look()
    world.annotate(PAUSED, None)
    world.look()
    assert world.api.body("Service", "chat")


def _facts(body: Body) -> list[Any]:
    meta = body["metadata"]
    return [meta["labels"], meta["ownerReferences"], body["spec"], body.get("status")]


def _scale(deployment: Body) -> None:
    deployment["spec"]["replicas"] = 2


def _status(deployment: Body) -> None:
    deployment["status"] = {"readyReplicas": 1}


def _image(deployment: Body) -> None:
    deployment["spec"]["template"]["spec"]["containers"][0]["image"] = "evil"


def _label(deployment: Body) -> None:
    deployment["metadata"]["labels"]["app.kubernetes.io/component"] = "none"


def _orphan(deployment: Body) -> None:
    deployment["metadata"]["ownerReferences"] = []


def _extra(deployment: Body) -> None:
    deployment["spec"]["template"]["spec"]["hostNetwork"] = True  # a field that nobody of us sets: no drift


@pytest.mark.parametrize(
    ("change", "compared", "stays"),
    [
        (_scale, False, False),  # out of bounds: the number is put back
        (_status, False, True),
        (_image, True, False),
        (_label, True, False),
        (_orphan, True, False),
        (_extra, True, True),
    ],
)
def test_deployments_are_compared_in_full_as_soon_as_they_are_not_as_they_were(
    world: World, change: Callable[[Body], None], compared: bool, stays: bool
) -> None:
    """Their own watch tells of numbers all the time; only what is not as it was when all was in place is drift."""
    body = world.api.body("Deployment", "chat-prefill")
    before = copy.deepcopy(body)
    change(body)
    changed = copy.deepcopy(body)
    world.api.objects["Deployment", KEY[0], "chat-prefill"] = body
    assert world.look() == (ALWAYS | RESTING if compared else ALWAYS)
    assert _facts(world.api.body("Deployment", "chat-prefill")) == _facts(changed if stays else before)
    for _ in range(2):
        world.look()
    assert world.look() == ALWAYS


def test_a_revision_that_goes_is_rendered_anew(world: World) -> None:
    (name,) = [name for kind, _, name in world.api.objects if kind == "ControllerRevision"]
    world.api.remove("ControllerRevision", name)
    world.rest.told(KEY, "ControllerRevision")
    assert world.look() == ALWAYS | RESTING
    assert world.api.body("ControllerRevision", name)


def test_hardware_is_read_when_it_changed_and_when_another_is_named(world: World) -> None:
    world.rest.told(KEY, "Accelerator")
    assert world.look() == {*ALWAYS, "Accelerator"}
    assert world.look() == ALWAYS
    world.api.edit("InferenceService", "chat", {"spec": {"accelerator": "l40s"}})
    assert "Accelerator" in world.look()


def test_a_service_of_the_same_name_is_another_service(world: World) -> None:
    world.api.edit("InferenceService", "chat", {"metadata": {"uid": "another"}})
    assert world.look() >= ALWAYS | RESTING


def test_an_event_during_a_look_counts_for_the_next() -> None:
    rest = Rest(FULL, lambda: 0.0)
    assert rest.begin(KEY) == Left()
    rest.told(KEY, "Service")
    rest.settled(KEY, FOUND)
    assert rest.begin(KEY) == Left(RESTING - {"Service"}, FOUND)
    rest.settled(KEY, FOUND)
    assert rest.begin(KEY) == Left(RESTING, FOUND)


def test_a_look_that_failed_vouches_for_nothing_new() -> None:
    rest = Rest(FULL, lambda: 0.0)
    rest.begin(KEY)
    rest.settled(KEY, FOUND)
    rest.told(KEY, "Role")
    rest.begin(KEY)  # and is not settled
    assert rest.begin(KEY) == Left(RESTING - {"Role"}, FOUND)


def test_a_service_that_is_gone_is_forgotten() -> None:
    rest = Rest(FULL, lambda: 0.0)
    rest.begin(KEY)
    rest.settled(KEY, FOUND)
    rest.forget(KEY)
    rest.told(KEY, "Service")
    assert rest.begin(KEY) == Left()


def test_only_what_is_counted_never_rests() -> None:
    assert {resource.kind for resource in CHILD_KINDS} - RESTING == {"Deployment"}
    assert RESTING - {resource.kind for resource in CHILD_KINDS} == {"ControllerRevision", "Accelerator"}

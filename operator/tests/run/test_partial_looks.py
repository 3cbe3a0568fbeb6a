"""A look leaves out what is at rest: when it may, what makes it read again, and that nothing is missed for long."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from memory_api import MemoryApi
from operator_bodies import SITE, service_body, simulated
from steelyard.api.labels import PAUSED
from steelyard.catalog.accelerators import ACCELERATORS
from steelyard.observe.resources import CHILD_KINDS
from steelyard.run.reconcile import Reconciler
from steelyard.run.rest import RESTING, Left, Rest

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY = ("team-a", "chat")
FULL = 300.0
ALWAYS = {"Deployment", "ControllerRevision", "Pod"}


class World:
    """One service, an operator that remembers, and which kinds its last look listed."""

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
    assert world.look() == {*ALWAYS, "ConfigMap"}
    assert world.api.body("ConfigMap", "chat-gateway")["data"]["gateway.json"] != "{}"
    world.rest.told(KEY, "ConfigMap")  # of the repair
    assert world.look() == {*ALWAYS, "ConfigMap"}
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


def test_an_event_during_a_look_counts_for_the_next() -> None:
    rest = Rest(FULL, lambda: 0.0)
    assert rest.begin(KEY) == Left()
    rest.told(KEY, "Service")
    rest.settled(KEY, "r")
    assert rest.begin(KEY) == Left(RESTING - {"Service"}, "r")
    rest.settled(KEY, "r")
    assert rest.begin(KEY) == Left(RESTING, "r")


def test_a_look_that_failed_vouches_for_nothing_new() -> None:
    rest = Rest(FULL, lambda: 0.0)
    rest.begin(KEY)
    rest.settled(KEY, "r")
    rest.told(KEY, "Role")
    rest.begin(KEY)  # and is not settled
    assert rest.begin(KEY) == Left(RESTING - {"Role"}, "r")


def test_a_service_that_is_gone_is_forgotten() -> None:
    rest = Rest(FULL, lambda: 0.0)
    rest.begin(KEY)
    rest.settled(KEY, "r")
    rest.forget(KEY)
    rest.told(KEY, "Service")
    assert rest.begin(KEY) == Left()


def test_only_kinds_of_children_rest_and_never_those_that_are_counted() -> None:
    assert {resource.kind for resource in CHILD_KINDS} - RESTING == {"Deployment"}

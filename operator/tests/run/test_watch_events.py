"""Events become asks: repeated ones fold, the user's are urgent, children find their service by label."""

from __future__ import annotations

from typing import Any

import kopf
from operator_bodies import service_body
from steelyard.api.labels import SERVICE
from steelyard.run.health import Health
from steelyard.run.watching import FOLD_SECONDS, Services, register, settings

KEY = ("team-a", "chat")


class Asks:
    def __init__(self) -> None:
        self.made: list[tuple[Any, ...]] = []
        self.health = Health(loop_turned=0)
        self.services = Services(self.ask, lambda key: None, self.health)

    def ask(self, key: Any, after: float = 0.0, urgent: bool = False) -> None:
        self.made.append((key, after, urgent))


def test_the_users_changes_are_urgent_and_our_status_writes_are_not() -> None:
    asks = Asks()
    asks.services.service(None, service_body())
    asks.services.service("MODIFIED", service_body() | {"status": {"ready": "1/2"}})
    asks.services.service("MODIFIED", service_body(generation=2))
    asks.services.service("MODIFIED", service_body(generation=2, annotations={"serving.steelyard.dev/paused": "true"}))
    assert [urgent for _, _, urgent in asks.made] == [True, False, True, True]


def test_a_replayed_event_asks_again_without_urgency() -> None:
    """kubernetes-client/python#700 (B14): history is replayed; the same object must not count as a change."""
    asks = Asks()
    for kind in ("ADDED", "ADDED", None):
        asks.services.service(kind, service_body())
    assert [urgent for _, _, urgent in asks.made] == [True, False, False]


def test_children_ask_for_their_service_and_strangers_for_nothing() -> None:
    asks = Asks()
    asks.services.service(None, service_body())
    asks.services.child("Service", {"name": "x", "namespace": "team-a", "labels": {SERVICE: "chat"}})
    asks.services.child("Service", {"name": "x", "namespace": "team-b", "labels": {SERVICE: "chat"}})
    asks.services.child("Service", {"name": "x", "namespace": "team-a"})
    assert asks.made[1:] == [(KEY, FOLD_SECONDS, False)]


def test_a_deletion_is_looked_at_and_later_children_ask_for_nothing() -> None:
    asks = Asks()
    asks.services.service(None, service_body())
    asks.services.service("DELETED", service_body())
    asks.services.child("Service", {"name": "x", "namespace": "team-a", "labels": {SERVICE: "chat"}})
    assert [key for key, _, _ in asks.made] == [KEY, KEY]


def test_hardware_changes_ask_for_every_service() -> None:
    asks = Asks()
    asks.services.service(None, service_body())
    asks.services.service(None, service_body(name="other"))
    asks.services.missed("Accelerator")
    assert [key[1] for key, _, _ in asks.made[2:]] == ["chat", "other"]


def test_missed_changes_make_every_service_look_at_that_kind_again() -> None:
    """Whatever a broken watch did not tell of, deletions included, is seen by the next look (B13)."""
    told: list[tuple[Any, str]] = []
    asks = Asks()
    asks.services = Services(asks.ask, lambda key: None, asks.health, lambda key, kind: told.append((key, kind)))
    for name in ("chat", "other"):
        asks.services.service(None, service_body(name=name))
    asks.services.missed("Role")
    assert told == [(("team-a", "chat"), "Role"), (("team-a", "other"), "Role")]
    assert [(key[1], after) for key, after, _ in asks.made[2:]] == [("chat", FOLD_SECONDS), ("other", FOLD_SECONDS)]


def test_kopf_only_watches_and_only_our_kinds() -> None:
    found = settings()
    assert not found.posting.enabled
    assert found.scanning.disabled
    registry = kopf.OperatorRegistry()
    register(registry, Asks().services)
    watched = {
        handler.selector.any_name or handler.selector.plural for handler in registry._watching.get_all_handlers()
    }
    assert watched == {"inferenceservices", "accelerators"}

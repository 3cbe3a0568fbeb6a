"""A state machine over the reconciler: whatever happens in whatever order, it ends with the same children and status.

Users edit, revert, pause, delete and recreate the service, edit, relabel, adopt and delete its children, and scale; the
cluster loses hardware, pods and events; calls fail with 409 and 504, carried out or not; leadership goes in the middle, and
a replica that does not know yet writes on; the process dies between any two calls. When all that ends, the children and the
status are those of an operator that saw nothing of it, each was written once at most, and then nothing is written.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from operated_world import KEY, NAMESPACE, Disturbance, Fault, World
from steelyard.api.labels import PAUSED, RENDER, SERVICE
from steelyard.apply.revisions import KEPT
from steelyard.observe.client import ApiError, Body

SPECS: dict[str, Body] = {
    "plain": {},
    "wide": {"decode": {"replicas": {"min": 2, "max": 4, "initial": 3}}, "routing": {"replicas": 3}},
    "aggregated": {"topology": "Aggregated", "aggregated": {"replicas": {"min": 2, "max": 2}}},
    "long": {"model": {"contextLength": 8192}},
    "keys": {"routing": {"apiKeys": {"secretName": "keys"}, "requestTimeout": "90s"}},
    "others scale": {"autoscaling": {"mode": "Off"}},
    "unknown hardware": {"accelerator": "h2000"},
    "crossed bounds": {"decode": {"replicas": {"min": 5, "max": 2}}},
    "unreadable": {"decode": {"replicas": {"min": 0}}},
}
EDITS: tuple[tuple[str, Body], ...] = (
    ("Deployment", {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 7}}}}),
    ("Deployment", {"spec": {"template": {"metadata": {"labels": {"team": "a"}}}}}),
    ("Service", {"spec": {"selector": {SERVICE: "other"}}}),
    ("Service", {"metadata": {"labels": {"team": "a"}}}),
    ("NetworkPolicy", {"spec": {"ingress": [{}]}}),
    ("Role", {"rules": []}),
    ("ConfigMap", {"data": None}),
    ("ConfigMap", {"metadata": {"annotations": None}}),
    ("PodDisruptionBudget", {"metadata": {"labels": None}}),
    ("ServiceAccount", {"metadata": {"ownerReferences": None}}),
    ("RoleBinding", {"metadata": {"finalizers": ["example.com/hold"]}}),
)
DELETED = ("ServiceAccount", "Role", "RoleBinding", "ConfigMap", "Service", "NetworkPolicy", "Deployment")
FOREIGN = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "chat-decode", "namespace": NAMESPACE, "uid": "uid-of-somebody"},
    "spec": {"selector": {"app": "mine"}},
}
ADDED = ("team",)  # what users add to children, which stays there

pick = st.integers(0, 19)  # which of the objects that are there
places = st.one_of(  # in a run that creates everything there are some sixty calls, half of them writes
    st.tuples(st.integers(0, 25), st.just(True)), st.tuples(st.integers(0, 60), st.just(False))
)


class Deeds:
    """What others do to the world."""

    def __init__(self, world: World) -> None:
        self.world = world

    def _chosen(self, kind: str, number: int) -> str | None:
        found = sorted(body["metadata"]["name"] for body in self.world.children(kind))
        return found[number % len(found)] if found else None

    def specify(self, name: str) -> None:
        service = self.world.service()
        if service is None:
            self.world.create(SPECS[name])
            return
        other = World()
        other.create(SPECS[name])
        wish = other.service()
        assert wish is not None
        self.world.api.edit(*_place(service), {"spec": None})
        self.world.api.edit(*_place(service), {"spec": wish["spec"]})

    def annotate(self, key: str, value: str | None) -> None:
        service = self.world.service()
        if service is not None:
            self.world.api.edit(*_place(service), {"metadata": {"annotations": {key: value}}})

    def delete_service(self) -> None:
        if self.world.service() is not None:
            self.world.api.remove("InferenceService", KEY[1])

    def edit_child(self, number: int, edit: tuple[str, Body]) -> None:
        if (name := self._chosen(edit[0], number)) is not None:
            self.world.api.edit(edit[0], name, edit[1])

    def delete_child(self, number: int, kind: str) -> None:
        if (name := self._chosen(kind, number)) is not None:
            self.world.api.remove(kind, name)

    def delete_revision(self, number: int) -> None:
        found = [name for kind, _, name in self.world.api.objects if kind == "ControllerRevision"]
        if found:
            self.world.api.remove("ControllerRevision", found[number % len(found)])

    def scale(self, number: int, replicas: int) -> None:
        if (name := self._chosen("Deployment", number)) is not None:
            self.world.api.scale_by_hand(name, replicas)

    def take_a_name(self) -> None:
        if ("Service", NAMESPACE, "chat-decode") not in self.world.api.objects:
            self.world.api.put(FOREIGN)

    def lose_hardware(self) -> None:
        if ("Accelerator", "", "h200") in self.world.api.objects:
            self.world.api.remove("Accelerator", "h200")

    def bring_hardware(self) -> None:
        for body in World().api.objects.values():
            if ("Accelerator", "", body["metadata"]["name"]) not in self.world.api.objects:
                self.world.api.put(body)

    def pods(self, ready: bool) -> None:
        self.world.ready = ready
        self.world.control()

    def another_replica_works(self) -> None:
        """A replica that took over, or one that does not know yet that it was replaced."""
        try:
            self.world.reconcile()
        except ApiError:
            return

    def collect_garbage(self) -> None:
        self.world.api.collect_garbage()


def deeds(world: World) -> st.SearchStrategy[Callable[[], None]]:
    """Everything that others may do, as something to call."""
    others = Deeds(world)

    def deed(name: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Callable[[], None]]:
        act = getattr(others, name)
        return st.tuples(*arguments).map(lambda given: _Deed(name, given, act))

    return st.one_of(
        *[deed("specify", st.sampled_from(sorted(SPECS)))] * 3,
        deed("annotate", st.just(PAUSED), st.sampled_from(["true", None])),
        deed("annotate", st.just(RENDER), st.sampled_from(["1", "2", None])),
        deed("delete_service"),
        *[deed("edit_child", pick, st.sampled_from(EDITS))] * 3,
        deed("delete_child", pick, st.sampled_from(DELETED)),
        deed("delete_revision", pick),
        deed("scale", pick, st.integers(0, 6)),
        deed("take_a_name"),
        deed("lose_hardware"),
        deed("bring_hardware"),
        deed("pods", st.booleans()),
        deed("another_replica_works"),
        deed("collect_garbage"),
    )


class _Deed:
    """A deed that says what it is, for the story of a failed run."""

    def __init__(self, name: str, given: tuple[Any, ...], act: Callable[..., None]) -> None:
        self.name, self.given, self.act = name, given, act

    def __call__(self) -> None:
        self.act(*self.given)

    def __repr__(self) -> str:
        return f"{self.name}{self.given}"


def _place(body: Body) -> tuple[str, str]:
    return body["kind"], body["metadata"]["name"]


class Histories(RuleBasedStateMachine):
    """Random histories; every one ends in `settle`."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.world.create({})
        self.deeds = Deeds(self.world)

    @rule(data=st.data(), hears=st.booleans(), faulty=st.booleans())
    def others_act_and_the_operator_works(self, data: st.DataObject, hears: bool, faulty: bool) -> None:
        for deed in data.draw(st.lists(deeds(self.world), min_size=1, max_size=3), "deeds"):
            deed()
        if hears:
            self.world.hear()
        found = []
        for number, of_writes in data.draw(st.sets(places, min_size=faulty, max_size=3), "disturbed at"):
            faults, others = st.sampled_from(Fault), deeds(self.world)
            what = data.draw(st.booleans().flatmap(lambda fault, f=faults, o=others: f if fault else o), f"at {number}")
            found.append(Disturbance(number, what, of_writes))
        self.world.run(*found)

    @rule(most=st.integers(1, 30), lost=st.integers(0, 10))
    def some_events_arrive_and_some_are_lost(self, most: int, lost: int) -> None:
        del self.world.api.told[:lost]
        self.world.hear(most)
        self.world.run()

    @rule()
    def the_operator_is_restarted(self) -> None:
        self.world.restart()

    def teardown(self) -> None:
        settle(self.world)


def settle(world: World) -> None:
    """End all disturbances, and compare with a world in which there were none."""
    deeds = Deeds(world)
    deeds.bring_hardware()
    deeds.annotate(PAUSED, None)
    if _is_foreign(world):
        world.api.remove("Service", "chat-decode")
    for body in world.children():
        if body["metadata"].get("finalizers"):
            world.api.edit(*_place(body), {"metadata": {"finalizers": None}})
    world.ready = True
    world.control()
    world.api.collect_garbage()
    world.lose_watches()  # as kopf's watches do by themselves every five minutes
    writes = _until_quiet(world)
    assert [place for place, count in writes.items() if count > 1] == [], "written more than once"
    service = world.service()
    if service is None:
        assert world.children() == []
        return
    undisturbed = _undisturbed(world, service)
    if undisturbed is not None:
        assert _children(world) == _children(undisturbed)
        assert _status(world) == _status(undisturbed)
    revisions = [body for (kind, _, _), body in world.api.objects.items() if kind == "ControllerRevision"]
    assert len(revisions) <= KEPT


def _is_foreign(world: World) -> bool:
    found = world.api.objects.get(("Service", NAMESPACE, "chat-decode"))
    return found is not None and found["metadata"]["uid"] == "uid-of-somebody"


def _until_quiet(world: World) -> Counter[str]:
    """Let operator and cluster work until three looks in a row wrote nothing, in a bounded number of looks."""
    world.api.writes.clear()
    quiet = 0
    for _ in range(14):
        if quiet == 3:
            break
        known, told = len(world.api.writes), len(world.api.events)
        world.run()
        quiet = quiet + 1 if (len(world.api.writes), len(world.api.events)) == (known, told) else 0
        world.control()
        world.api.collect_garbage()
        world.hear()
    assert quiet == 3, f"still writing: {world.api.writes[-8:]}"
    return Counter(place for place in world.api.writes if not place.endswith("/status"))


def _undisturbed(world: World, service: Body) -> World | None:
    """The same wish in a quiet world, with the numbers that run here; None where the wish is refused."""
    other = World()
    wish = copy.deepcopy(service)
    wish.pop("status", None)
    other.api.put(wish)
    other.restart()
    other.run()
    other.control()
    if not other.children():
        return None
    for body in world.children("Deployment"):
        name, number = body["metadata"]["name"], body["spec"]["replicas"]
        assert ("Deployment", NAMESPACE, name) in other.api.objects, f"{name} is not of this spec"
        other.api.scale_by_hand(name, number)
    other.control()
    other.hear()
    _until_quiet(other)
    return other


def _children(world: World) -> dict[str, Body]:
    """The children without what the API server writes and what users added."""
    found = {}
    for body in map(copy.deepcopy, world.children()):
        meta = body["metadata"]
        for name in ("uid", "resourceVersion", "generation", "managedFields"):
            meta.pop(name, None)
        body.pop("status", None)
        _without_additions(meta)
        if body["kind"] == "Deployment":
            _without_additions(body["spec"]["template"]["metadata"])
        found[f"{body['kind']}/{meta['name']}"] = body
    return found


def _without_additions(meta: Body) -> None:
    for name in ADDED:
        (meta.get("labels") or {}).pop(name, None)


def _status(world: World) -> Body:
    service = world.service()
    assert service is not None
    status = copy.deepcopy(service["status"])
    for condition in status["conditions"]:
        del condition["lastTransitionTime"], condition["observedGeneration"]
    del status["observedGeneration"]
    return dict(status)


TestHistories = pytest.mark.timeout(600)(Histories.TestCase)  # on a crowded machine; a dozen seconds of work
# The same histories in every run, so that a change is judged by itself; more examples without `derandomize` go and look for others.
TestHistories.settings = settings(
    derandomize=True,
    max_examples=30,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)

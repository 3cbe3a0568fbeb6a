"""The API server of the unit tests and a real one, side by side: every step is taken on both, and then they are compared.

What the fake keeps must be there on the real one with the same value, and what the three writers of the steps own there must be
the same fields.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Container
from typing import Any, Protocol

from field_ownership import Manager, Path, leaves, paths_of
from memory_api import GENERATIONS, MemoryApi
from steelyard.observe.client import Api, ApiError
from steelyard.observe.resources import BY_KIND, CHILD_KINDS, CONTROLLER_REVISION

from e2e.platform import Platform

Body = dict[str, Any]
APPLIER, SCALER, USER = "tester", "tester-scaler", "somebody"
NAME = "rehearsal"


class Outside(Protocol):
    """What people do to the objects of one namespace."""

    def edit(self, kind: str, name: str, change: Body, manager: str = USER) -> None: ...
    def scale_by_hand(self, name: str, replicas: int, manager: str = USER) -> None: ...
    def remove(self, kind: str, name: str) -> None: ...


class Hands:
    """`Outside` on the real API server."""

    def __init__(self, platform: Platform, namespace: str) -> None:
        self.platform, self.namespace = platform, namespace

    def edit(self, kind: str, name: str, change: Body, manager: str = USER) -> None:
        self._patch(kind, name, change, manager)

    def scale_by_hand(self, name: str, replicas: int, manager: str = USER) -> None:
        self._patch("Deployment", name, {"spec": {"replicas": replicas}}, manager, "--subresource=scale")

    def remove(self, kind: str, name: str) -> None:
        self.platform.kubectl("delete", kind, name, "-n", self.namespace, "--wait=false")

    def _patch(self, kind: str, name: str, change: Body, manager: str, *flags: str) -> None:
        how = ("--type=merge", f"--field-manager={manager}", "-p", json.dumps(change), *flags)
        self.platform.kubectl("patch", kind, name, "-n", self.namespace, *how)


class Both:
    """The two API servers, side by side."""

    def __init__(self, real: Api, hands: Hands, wanted: list[Body], service: Body) -> None:
        self.namespace, self.service = hands.namespace, service
        self.real, self.hands, self.fake = real, hands, MemoryApi()
        self.wanted = {(body["kind"], body["metadata"]["name"]): body for body in wanted}

    def child(self, kind: str, name: str) -> Body:
        return copy.deepcopy(self.wanted[kind, name])

    def call(self, step: Callable[[Api], Any]) -> str:
        """Take a step by the operator's client on both; the same must become of it. Gives its error, or nothing."""
        return self._same(lambda: step(self.real), lambda: step(self.fake))

    def by_hand(self, step: Callable[[Outside], Any]) -> str:
        """Take a step of somebody else's on both."""
        return self._same(lambda: step(self.hands), lambda: step(self.fake))

    def apply(self, body: Body) -> str:
        return self.call(lambda api: api.apply(BY_KIND[body["kind"]], body, APPLIER))

    def apply_all(self) -> None:
        for body in self.wanted.values():
            for api in (self.real, self.fake):
                api.apply(BY_KIND[body["kind"]], body, APPLIER)
        self.compare()

    def _same(self, real: Callable[[], Any], fake: Callable[[], Any]) -> str:
        ended = [_error(step) for step in (real, fake)]
        assert ended[0] == ended[1], "the real one and the fake do not refuse alike"
        self.compare()
        return ended[0]

    def compare(self) -> None:
        """Hold everything that the fake keeps to the real one, in one look at both."""
        there, kept = self.listed(self.real), self.listed(self.fake)
        assert there.keys() == kept.keys()
        for place, fake in kept.items():
            real, ours = there[place], dict(leaves(fake))
            found = dict(leaves(real))
            wrong = {p: value for p, value in ours.items() if p not in found or not _holds(value, found[p])}
            assert wrong == {}, f"{place}: kept by the fake and not by the real one"
            assert _owned(real, ours) == _owned(fake, ours), f"{place}: owners"
            assert ("deletionTimestamp" in real["metadata"]) == ("deletionTimestamp" in fake["metadata"])
            if place[0] in GENERATIONS:
                assert real["metadata"].get("generation") == fake["metadata"]["generation"], place

    def listed(self, api: Api) -> dict[tuple[str, str], Body]:
        """The children by kind and name."""
        ours = f"app.kubernetes.io/managed-by=steelyard,serving.steelyard.dev/service={NAME}"
        kinds = (*CHILD_KINDS, CONTROLLER_REVISION)
        return {(r.kind, b["metadata"]["name"]): b for r in kinds for b in api.list(r, self.namespace, ours)}


def _error(step: Callable[[], Any]) -> str:
    try:
        step()
    except ApiError as error:
        return type(error).__name__
    return ""


def _holds(kept: Any, real: Any) -> bool:
    """Whether a value is there; the real API server fills in defaults even inside a map that is one value."""
    if isinstance(kept, dict) and isinstance(real, dict):
        return all(name in real and _holds(value, real[name]) for name, value in kept.items())
    if isinstance(kept, list) and isinstance(real, list):
        return len(kept) == len(real) and all(map(_holds, kept, real))
    return bool(kept == real)


def _owned(body: Body, known: Container[Path]) -> dict[Manager, set[Path]]:
    """Fields of the three writers of these steps, as far as the fake has them: to an update defaults belong as well."""
    return {
        Manager(entry["manager"], entry["operation"], entry.get("subresource", "")): {
            path for path in paths_of(entry["fieldsV1"]) if path in known
        }
        for entry in body["metadata"].get("managedFields") or []
        if entry["manager"] in (APPLIER, SCALER, USER)
    }

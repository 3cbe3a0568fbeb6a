"""The table of rights against what the code does: no right that nothing uses, none missing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from memory_api import MemoryApi
from operator_bodies import SITE, merged, service_body, simulated
from quantize_world import put_pod, running
from steelyard.api.labels import GROUP, SERVICE
from steelyard.apply.access import ACCESS
from steelyard.apply.lease import Elector
from steelyard.apply.roles import relabel
from steelyard.catalog.accelerators import ACCELERATORS
from steelyard.observe.client import Body
from steelyard.observe.resources import ACCELERATOR, CHILD_KINDS, CONTROLLER_REVISION, INFERENCE_SERVICE, POD, Resource
from steelyard.run.reconcile import Reconciler

Right = tuple[str, str, str]


class Recorder(MemoryApi):
    """Remembers which right each call needs, as the API server would check it."""

    def __init__(self) -> None:
        super().__init__()
        self.used: set[Right] = set()

    def need(self, resource: Resource, verb: str, sub: str | None = None) -> None:
        self.used.add((resource.group, resource.plural + (f"/{sub}" if sub else ""), verb))

    def get(self, resource: Resource, namespace: str | None, name: str) -> Body:
        self.need(resource, "get")
        return super().get(resource, namespace, name)

    def list(self, resource: Resource, namespace: str | None, labels: str | None = None) -> Any:
        self.need(resource, "list")
        return super().list(resource, namespace, labels)

    def log(self, resource: Resource, namespace: str, pod: str, container: str, lines: int, size: int) -> str:
        self.need(resource, "get", "log")
        return super().log(resource, namespace, pod, container, lines, size)

    def apply(
        self, resource: Resource, body: Body, manager: str, subresource: str | None = None, rehearse: bool = False
    ) -> Body:
        self.need(resource, "patch", subresource)
        if (
            subresource is None
            and super().find(resource, body["metadata"].get("namespace"), body["metadata"]["name"]) is None
        ):
            self.need(resource, "create")  # server-side apply of what is not there
        return super().apply(resource, body, manager, subresource, rehearse)

    def create(self, resource: Resource, body: Body, manager: str) -> Body:
        self.need(resource, "create")
        return super().create(resource, body, manager)

    def replace(self, resource: Resource, body: Body, manager: str) -> Body:
        self.need(resource, "update")
        return super().replace(resource, body, manager)

    def merge(self, resource: Resource, namespace: str | None, name: str, uid: str, change: Body, manager: str) -> Body:
        self.need(resource, "patch")
        return super().merge(resource, namespace, name, uid, change, manager)

    def delete(self, resource: Resource, namespace: str | None, name: str, uid: str) -> None:
        self.need(resource, "delete")
        super().delete(resource, namespace, name, uid)


def used() -> set[Right]:
    """Drive the operator through creation, every kind of prune, many revisions, a Job, and leadership."""
    api = Recorder()
    for accelerator in ACCELERATORS.values():
        api.put(accelerator.manifest())
    api.put(service_body(simulated({"engine": {"prepull": True}})))
    operator = Reconciler(api, SITE, "operator-1", 300)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    for length in (512, 1024, 2048, 4096, 8192):
        api.edit("InferenceService", "chat", {"spec": {"model": {"contextLength": length}}})
        operator("team-a", "chat", 0, now)
    spec = {
        "model": {"uri": "hf://org/model@v1", "servedName": None},
        "engine": {"name": "vllm"},
        "accelerator": "h200",
    }
    api.put(
        service_body(spec | {"quantization": {"source": "Job", "weights": "fp8", "job": {"claim": "q"}}}, name="job")
    )
    operator("team-a", "job", 0, now)
    put_pod(api, running())
    operator("team-a", "job", 0, now)
    api.edit("InferenceService", "job", {"spec": {"quantization": {"weights": "int8"}}})
    operator("team-a", "job", 0, now)
    wide = {**spec, "topology": "Aggregated", "parallelism": {"tensor": 16}}
    api.put(service_body(wide, name="wide"))
    operator("team-a", "wide", 0, now)
    operator("team-a", "wide", 0, now)
    api.edit("InferenceService", "wide", {"spec": {"parallelism": {"tensor": 8}}})
    operator("team-a", "wide", 0, now)
    kinds = {resource.kind for resource in CHILD_KINDS}
    for child in [body for (kind, _, _), body in api.objects.items() if kind in kinds and _of(body) == "chat"]:
        api.put(merged(child, {"metadata": {"name": "left-over", "uid": f"uid-{child['kind']}"}}))
    operator("team-a", "chat", 0, now)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "team-a"}, "spec": {}}
    api.put(pod)
    assert relabel(api, "team-a", "p", api.body("Pod", "p")["metadata"]["uid"], "decode")
    elector = Elector(api, "system", "operator", "a")
    elector.step(0)
    elector.step(1)
    watched = {
        (r.group, r.plural, verb)
        for r in (*CHILD_KINDS, CONTROLLER_REVISION, POD, INFERENCE_SERVICE, ACCELERATOR)
        for verb in ("list", "watch")
    }
    by_owner_references = {(GROUP, "inferenceservices/finalizers", "update")}
    return api.used | watched | by_owner_references | given_on(api)


def _of(body: Body) -> str:
    """The service that a child belongs to."""
    return str(body["metadata"]["labels"][SERVICE])


def given_on(api: MemoryApi) -> set[Right]:
    """Rights that the operator gives to gateways: it must hold them itself, or the API server refuses the Role."""
    rules = [rule for (kind, _, _), body in api.objects.items() if kind == "Role" for rule in body["rules"]]
    return {(g, r, v) for rule in rules for g in rule["apiGroups"] for r in rule["resources"] for v in rule["verbs"]}


def test_the_table_has_what_the_code_uses_and_nothing_else() -> None:
    granted = {(access.group, access.resource, verb) for access in ACCESS for verb in access.verbs}
    assert granted == used()


def test_no_right_is_a_wildcard_and_secrets_are_never_read() -> None:
    for access in ACCESS:
        assert "*" not in (access.group, access.resource, *access.verbs)
        assert access.resource != "secrets"
        assert access.why

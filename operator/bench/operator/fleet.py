"""The services of a run, and the states of their pods and Deployments, which no controller is there to write."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import yaml
from steelyard.api import names
from steelyard.api.labels import FIELD_MANAGER, MANAGED_BY, MANAGER, SERVICE
from steelyard.api.service import InferenceService
from steelyard.apply.drift import stamped
from steelyard.apply.revisions import store
from steelyard.apply.scale import scale
from steelyard.build import render
from steelyard.catalog.accelerators import ACCELERATORS
from steelyard.decide.fingerprint import spec_hash
from steelyard.decide.site import Site
from steelyard.observe.client import Api
from steelyard.observe.resources import BY_KIND, DEPLOYMENT, INFERENCE_SERVICE, POD, Resource

from e2e.cache import REPOSITORY

EXAMPLE = REPOSITORY / "docs" / "examples" / "smollm2.yaml"
MANAGER_NAME = "bench"
PARALLEL = 8
SITE = Site("bench/gateway:1", "bench/engine:1", "IfNotPresent", (), "steelyard-system")
_NAMESPACE = Resource("Namespace", "", "v1", "namespaces", namespaced=False)


@dataclass(frozen=True)
class Key:
    """A service's place."""

    namespace: str
    name: str


def keys(count: int, per_namespace: int) -> list[Key]:
    """The first so many services: equal for every count, so that a larger fleet contains the smaller."""
    return [Key(f"fleet-{number // per_namespace}", f"service-{number}") for number in range(count)]


def create(api: Api, wanted: Iterable[Key]) -> None:
    """Make the services, each as the example's, with their namespaces."""
    found = list(wanted)
    body = yaml.safe_load(EXAMPLE.read_text())
    for namespace in dict.fromkeys(key.namespace for key in found):
        api.apply(_NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}, MANAGER_NAME)
        account = {
            "name": "default",
            "namespace": namespace,
        }  # otherwise made by a controller; pods are refused without it
        api.apply(
            BY_KIND["ServiceAccount"],
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account},
            MANAGER_NAME,
        )

    def one(key: Key) -> None:
        meta = {"name": key.name, "namespace": key.namespace}
        api.apply(INFERENCE_SERVICE, {**body, "metadata": meta}, MANAGER_NAME)

    _each(one, found)


def furnish(api: Api, wanted: Iterable[Key]) -> None:
    """Write the children of services as the operator would have, which is quicker than to let it make a thousand."""

    def one(key: Key) -> None:
        body = api.get(INFERENCE_SERVICE, key.namespace, key.name)
        service = InferenceService.read({name: value for name, value in body.items() if name != "status"})
        rendered = render.children(service, ACCELERATORS, SITE)
        store(api, render.revision(service, rendered, spec_hash(service), 1))
        for child in map(stamped, rendered):
            api.apply(BY_KIND[child["kind"]], child, FIELD_MANAGER)
        for role, spec in service.spec.roles.items():
            scale(api, key.namespace, names.engines(key.name, role), spec.replicas.start)
        scale(api, key.namespace, names.gateway(key.name), service.spec.routing.replicas)

    _each(one, wanted)


def play_controllers(api: Api, wanted: Iterable[Key]) -> None:
    """Write what the controllers and kubelets of a settled cluster would have: a ready pod for every replica."""

    def one(key: Key) -> None:
        for deployment in api.list(DEPLOYMENT, key.namespace, f"{MANAGED_BY}={MANAGER},{SERVICE}={key.name}"):
            meta, replicas = deployment["metadata"], deployment["spec"]["replicas"]
            for number in range(replicas):
                set_ready(api, _pod(api, deployment, f"{meta['name']}-{number}"), True)
            counts = dict.fromkeys(("replicas", "readyReplicas", "updatedReplicas", "availableReplicas"), replicas)
            _status(api, DEPLOYMENT, meta, {**counts, "observedGeneration": meta["generation"]})

    _each(one, wanted)


def pod_of_prefill(key: Key) -> dict[str, Any]:
    """The place of a service's first prefill pod."""
    return {"metadata": {"name": f"{key.name}-prefill-0", "namespace": key.namespace}}


def set_ready(api: Api, pod: dict[str, Any], ready: bool) -> None:
    """Let a pod be ready or not, as its kubelet would say."""
    done = {"terminated": {"exitCode": 0}}
    weights = {"name": "weights", "state": done, "ready": True, "restartCount": 0, "image": "x", "imageID": "x"}
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]}
    _status(api, POD, pod["metadata"], {**status, "initContainerStatuses": [weights]})


def change(api: Api, key: Key, seconds: int) -> int:
    """Change a field of a service's spec that reaches one child, the gateway's settings; give the new generation."""
    body = yaml.safe_load(EXAMPLE.read_text())
    body["metadata"] = {"name": key.name, "namespace": key.namespace}
    body["spec"]["objectives"]["timeToFirstToken"] = f"{seconds}s"
    return int(api.apply(INFERENCE_SERVICE, body, MANAGER_NAME)["metadata"]["generation"])


def _pod(api: Api, deployment: dict[str, Any], name: str) -> dict[str, Any]:
    template = copy.deepcopy(deployment["spec"]["template"])
    body = {"apiVersion": "v1", "kind": "Pod", **template}
    body["metadata"] |= {"name": name, "namespace": deployment["metadata"]["namespace"]}
    return api.apply(POD, body, MANAGER_NAME)


def _status(api: Api, resource: Resource, meta: dict[str, Any], status: dict[str, Any]) -> None:
    place = {"name": meta["name"], "namespace": meta["namespace"]}
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": place, "status": status}
    api.apply(resource, body, MANAGER_NAME, subresource="status")


def _each(do: Callable[[Key], None], wanted: Iterable[Key]) -> None:
    with ThreadPoolExecutor(PARALLEL) as pool:
        for job in [pool.submit(do, key) for key in wanted]:
            job.result()

"""Images on nodes beforehand: which, where, and that these pods are nobody's replicas."""

from __future__ import annotations

from typing import Any

import pytest
from operator_bodies import KNOWN, SITE, service, simulated
from steelyard.api.labels import COMPONENT, MANAGED_BY, POOL, ROLE, SERVICE
from steelyard.build.meta import Body
from steelyard.build.render import children
from steelyard.decide.fingerprint import spec_hash


def sets(spec: dict[str, Any]) -> dict[str, Body]:
    made = children(service({**spec, "engine": {**spec.get("engine", {}), "prepull": True}}), KNOWN, SITE)
    return {body["metadata"]["name"]: body for body in made if body["kind"] == "DaemonSet"}


def images(body: Body) -> list[str]:
    return [one["image"] for one in body["spec"]["template"]["spec"]["initContainers"]]


WEIGHTS = "steelyard/model-smollm2:1"
DISTROLESS = {"name": "logs", "image": "logs:1"}


def test_each_role_has_its_own() -> None:
    assert set(sets({})) == {"chat-prefill-images", "chat-decode-images"}


@pytest.mark.parametrize(
    ("added", "wanted", "because"),
    [
        ({}, [WEIGHTS, SITE.engine_image], "what our containers run"),
        ({"containers": [DISTROLESS]}, [WEIGHTS, SITE.engine_image], "a sidecar's image may have no `true`"),
    ],
)
def test_the_images_of_our_own_containers(added: dict[str, Any], wanted: list[str], because: str) -> None:
    """One that cannot run `true` would keep the DaemonSet's pods from ever being there, on every node."""
    found = sets({"decode": {"template": {"spec": added}}})
    assert images(found["chat-decode-images"]) == wanted, because
    assert images(found["chat-prefill-images"]) == [WEIGHTS, SITE.engine_image], "the other role has its own"


def test_they_go_where_the_roles_pods_may_and_take_no_accelerator() -> None:
    tolerated = [{"key": "gpu", "operator": "Exists"}]
    vllm = {"model": {"uri": "hf://o/m"}, "engine": {"name": "vllm"}, "accelerator": "h200"}
    spec = sets({**vllm, "decode": {"template": {"spec": {"tolerations": tolerated}}}})["chat-decode-images"]["spec"]
    pod = spec["template"]["spec"]
    accelerator = KNOWN["h200"]
    assert accelerator is not None
    assert pod["nodeSelector"] == dict(accelerator.spec.node_selector)
    assert pod["tolerations"] == tolerated
    for container in (*pod["initContainers"], *pod["containers"]):
        assert set(container["resources"]["limits"]) == {"cpu", "memory"}
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert "env" not in container


def test_nobody_takes_them_for_replicas_or_gateways() -> None:
    for body in sets(simulated()).values():
        labels = body["spec"]["template"]["metadata"]["labels"]
        assert not labels.keys() & {SERVICE, MANAGED_BY, COMPONENT, POOL, ROLE}
        assert body["spec"]["selector"]["matchLabels"] == labels


def test_without_the_wish_there_are_none_and_pods_are_the_same_with_it() -> None:
    plain, wished = service(), service({"engine": {"prepull": True}})
    assert not [body for body in children(plain, KNOWN, SITE) if body["kind"] == "DaemonSet"]
    templates = [
        [body["spec"]["template"] for body in children(one, KNOWN, SITE) if body["kind"] == "Deployment"]
        for one in (plain, wished)
    ]
    assert templates[0] == templates[1], "asking for it rolls no pod"
    assert spec_hash(plain) != spec_hash(wished)

"""What counts as a difference between a wanted child and the live one."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from operator_bodies import KNOWN, SITE, merged, service
from steelyard.api.labels import SPEC_HASH
from steelyard.apply.drift import difference, hash_of, stamped
from steelyard.build.render import children

WANTED = [stamped(child) for child in children(service(), KNOWN, SITE)]
DEPLOYMENT = next(
    child for child in WANTED if child["metadata"]["name"] == "chat-decode" and child["kind"] == "Deployment"
)


def as_stored(body: dict[str, Any]) -> dict[str, Any]:
    """What the API server adds of its own: identity, defaults, status."""
    live = copy.deepcopy(body)
    live["metadata"] |= {"uid": "u", "resourceVersion": "7", "generation": 1, "creationTimestamp": "…"}
    live["status"] = {"replicas": 1}
    if live["kind"] == "Deployment":
        live["spec"]["replicas"] = 4
        live["spec"]["template"]["spec"] |= {"restartPolicy": "Always", "dnsPolicy": "ClusterFirst"}
        container = live["spec"]["template"]["spec"]["containers"][0]
        container["terminationMessagePath"] = "/dev/termination-log"
        container["readinessProbe"]["successThreshold"] = 1
    if live["kind"] == "Service":
        live["spec"] |= {"clusterIP": live["spec"].get("clusterIP", "10.0.0.1"), "sessionAffinity": "None"}
    return live


def test_defaults_status_and_replicas_are_nobodys_drift() -> None:
    for child in WANTED:
        assert difference(child, as_stored(child)) is None


def engine(change: dict[str, Any]) -> dict[str, Any]:
    live = as_stored(DEPLOYMENT)
    container = live["spec"]["template"]["spec"]["containers"][0]
    live["spec"]["template"]["spec"]["containers"][0] = merged(container, change)
    return live


@pytest.mark.parametrize(
    ("live", "found", "because"),
    [
        (engine({"image": "other"}), "spec.template.spec.containers[engine].image", "a value of ours"),
        (engine({"args": ["--x"]}), "spec.template.spec.containers[engine].args", "arguments are one value"),
        (
            engine({"securityContext": {"readOnlyRootFilesystem": False}}),
            "spec.template.spec.containers[engine].securityContext.readOnlyRootFilesystem",
            "a truth value",
        ),
        (engine({"ports": [{"containerPort": 8000, "name": "http", "protocol": "TCP"}]}),
         "spec.template.spec.containers[engine].ports[5600]", "a port of ours is missing"),
        (merged(as_stored(DEPLOYMENT), {"spec": {"selector": None}}), "spec.selector", "a field is gone"),
        (merged(as_stored(DEPLOYMENT), {"metadata": {"labels": {"app.kubernetes.io/managed-by": "me"}}}),
         "metadata.labels.app.kubernetes.io/managed-by", "a label of ours"),
        (merged(as_stored(DEPLOYMENT), {"metadata": {"annotations": {SPEC_HASH: "other"}}}),
         f"metadata.annotations.{SPEC_HASH}", "we want something else now"),
        (merged(as_stored(DEPLOYMENT), {"metadata": {"labels": {"team": "a"}}}), None, "a label of the user's"),
        (engine({"env": [*DEPLOYMENT["spec"]["template"]["spec"]["containers"][0]["env"], {"name": "X", "value": "1"}]}),
         None, "a variable of a mutating webhook's"),
    ],
)  # fmt: skip
def test_differences(live: dict[str, Any], found: str | None, because: str) -> None:
    assert difference(DEPLOYMENT, live) == found, because


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("NetworkPolicy", lambda live: live["spec"]["ingress"].append({})),
        ("Role", lambda live: live["rules"].append({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]})),
        ("RoleBinding", lambda live: live["subjects"].append({"kind": "User", "name": "mallory"})),
    ],
)
def test_a_widened_right_is_seen(kind: str, change: Any) -> None:
    wanted = next(child for child in WANTED if child["kind"] == kind)
    live = as_stored(wanted)
    change(live)
    assert difference(wanted, live) is not None


@pytest.mark.parametrize(
    ("wanted", "stored", "same"),
    [
        ("1000m", "1", True),
        ("0.5", "500m", True),
        ("1Gi", "1024Mi", True),
        ("500m", "400m", False),
        ("a", "b", False),
        (8000, 8000, True),
        (True, False, False),
        (["a", "b"], ["b", "a"], False),
        ({}, None, True),
        ([], None, True),
        ([], ["x"], False),
    ],
)
def test_spellings(wanted: Any, stored: Any, same: bool) -> None:
    assert (difference({"x": wanted}, {"x": stored}) is None) is same


@given(st.sampled_from(WANTED), st.data())
def test_any_leaf_that_is_changed_is_found(wanted: dict[str, Any], data: st.DataObject) -> None:
    """Property: replace any one leaf of what we applied by something else, and the difference names it."""
    live = copy.deepcopy(wanted)
    path, node = [], live
    while True:
        keys = sorted(node) if isinstance(node, dict) else list(range(len(node)))
        keys = [key for key in keys if node[key] not in ({}, [], None)]
        if not keys:
            return
        key = data.draw(st.sampled_from(keys))
        path.append(key)
        if not isinstance(node[key], dict | list):
            break
        node = node[key]
    node[path[-1]] = "changed by hand"
    assert difference(wanted, live) is not None, path


def test_the_hash_is_of_the_content_alone() -> None:
    body = {"kind": "X", "metadata": {"name": "n", "annotations": {"a": "1"}}, "spec": {"b": 1, "a": 2}}
    reordered = {"spec": {"a": 2, "b": 1}, "metadata": {"annotations": {"a": "1"}, "name": "n"}, "kind": "X"}
    assert hash_of(body) == hash_of(reordered) == hash_of(stamped(body))
    assert hash_of(body) != hash_of(merged(body, {"spec": {"a": 3}}))
    assert SPEC_HASH not in body["metadata"]["annotations"], "stamping leaves its argument alone"

"""The API server of the unit tests against a real one: the same steps, the same refusals, objects and owners of fields.

So the state machine over the reconciler (operator/tests/run) stands on what Kubernetes does, not on what we think it does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml
from steelyard.api.labels import PAUSED
from steelyard.api.service import InferenceService
from steelyard.apply.drift import stamped
from steelyard.build.render import children, revision
from steelyard.catalog.accelerators import ACCELERATORS
from steelyard.decide.site import Site
from steelyard.observe.client import Api, connect
from steelyard.observe.resources import BY_KIND, DEPLOYMENT, INFERENCE_SERVICE

from e2e.platform import EXAMPLES, Platform
from e2e.two_servers import APPLIER, NAME, SCALER, USER, Body, Both, Hands

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

SITE = Site("steelyard/gateway:none", "steelyard/engine:none", "Never", (), "monitoring", "steelyard-system")


@pytest.fixture
def both(platform: Platform, namespace: str) -> Both:
    """A paused service, whose children the tests write; no pod of it can be placed, so that Deployments come to rest."""
    api = connect(str(platform.cluster.kubeconfig))
    body = yaml.safe_load((EXAMPLES / "simulated.yaml").read_text())
    body["metadata"] |= {"annotations": {PAUSED: "true"}, "namespace": namespace}
    nowhere = {"template": {"spec": {"nodeSelector": {"nowhere": "yes"}}}}
    body["spec"] |= {role: {**(body["spec"].get(role) or {}), **nowhere} for role in ("prefill", "decode")}
    stored = api.create(INFERENCE_SERVICE, body, USER)
    wanted = [stamped(child) for child in children(InferenceService.read(stored), ACCELERATORS, SITE)]
    for child in wanted:
        if (
            child["metadata"]["name"] == NAME and child["kind"] == "Deployment"
        ):  # the gateway has no template of the user's
            child["spec"]["template"]["spec"]["nodeSelector"] = {"nowhere": "yes"}
    found = Both(api, Hands(platform, namespace), wanted, stored)
    found.fake.put({key: value for key, value in stored.items() if key != "status"})
    return found


def test_what_is_applied_is_kept_owned_and_not_written_twice(both: Both) -> None:
    both.apply_all()
    for (kind, name), body in both.wanted.items():
        for api in (both.real, both.fake):
            assert _still(api, both.namespace, body), f"{kind}/{name}: an apply of the same must not write"
    labelled = both.child("ConfigMap", f"{NAME}-gateway")
    labelled["metadata"]["labels"]["team"] = "a"
    both.apply(labelled)
    both.apply(both.child("ConfigMap", f"{NAME}-gateway"))
    assert "team" not in both.fake.body("ConfigMap", f"{NAME}-gateway")["metadata"]["labels"]


def _still(api: Api, namespace: str, body: Body) -> bool:
    """Whether an apply of the same leaves the version alone; controllers write status meanwhile, so it may take tries."""
    resource = BY_KIND[body["kind"]]
    for _ in range(20):
        before = api.get(resource, namespace, body["metadata"]["name"])
        after = api.apply(resource, body, APPLIER)
        if after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]:
            return True
    return False


def test_a_users_edits_change_owners_and_an_apply_takes_back_what_is_ours(both: Both) -> None:
    both.apply_all()
    decode, container = f"{NAME}-decode", {"name": "shell", "image": "shell:1"}
    pod = both.child("Deployment", decode)["spec"]["template"]["spec"]
    edits: tuple[tuple[str, str, Body], ...] = (
        ("Deployment", decode, {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 7}}}}),
        ("Deployment", decode, {"spec": {"template": {"spec": {"containers": [*pod["containers"], container]}}}}),
        ("Deployment", decode, {"spec": {"template": {"spec": {"enableServiceLinks": None}}}}),
        ("Service", decode, {"metadata": {"labels": {"team": "a"}, "annotations": {"note": "mine"}}}),
        ("Service", NAME, {"spec": {"selector": {"app": "other"}}}),
        ("NetworkPolicy", f"{NAME}-engine-kv", {"spec": {"ingress": [{}]}}),
        ("Role", f"{NAME}-gateway", {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
        ("ConfigMap", f"{NAME}-gateway", {"data": {"more": "text", "gateway.json": "{}"}}),
        ("PodDisruptionBudget", decode, {"spec": {"maxUnavailable": 0}}),
        ("ServiceAccount", f"{NAME}-gateway", {"automountServiceAccountToken": True}),
    )
    for kind, name, change in edits:
        both.by_hand(lambda outside, kind=kind, name=name, change=change: outside.edit(kind, name, change, USER))  # type: ignore[misc]
    both.apply_all()
    kept = both.fake.body("Deployment", decode)["spec"]["template"]["spec"]["containers"]
    assert [one["name"] for one in kept] == ["engine", "shell"], "what we do not set stays"
    both.apply_all()


def test_what_is_no_longer_wanted_goes_unless_somebody_else_owns_it(both: Both) -> None:
    both.apply_all()
    decode = f"{NAME}-decode"
    less = both.child("Deployment", decode)
    pod = less["spec"]["template"]["spec"]
    del pod["containers"][0]["env"], pod["containers"][0]["livenessProbe"], pod["enableServiceLinks"]
    pod["containers"][0]["args"] = ["--other"]
    pod["volumes"] = pod["volumes"][:-1]
    pod["containers"][0]["volumeMounts"] = pod["containers"][0]["volumeMounts"][:-1]
    both.by_hand(lambda outside: outside.edit("Deployment", decode, {"metadata": {"labels": {"team": "a"}}}, USER))
    both.apply(less)
    assert both.apply(both.child("Deployment", decode)) == ""


def test_replicas_are_their_writers_and_nobodys_while_only_patched(both: Both) -> None:
    """defilantech/LLMKube#1881 (B01): whose number it is decides whether an autoscaler of the user's is undone."""
    both.apply_all()
    decode = f"{NAME}-decode"

    def scale(number: int) -> Callable[[Api], Any]:
        body = {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": {"name": decode, "namespace": both.namespace},
            "spec": {"replicas": number},
        }
        return lambda api: api.apply(DEPLOYMENT, body, SCALER, subresource="scale")

    both.by_hand(lambda outside: outside.scale_by_hand(decode, 2, USER))
    both.call(scale(2))
    both.by_hand(lambda outside: outside.scale_by_hand(decode, 3, USER))
    both.apply(both.child("Deployment", decode))
    assert both.real.get(DEPLOYMENT, both.namespace, decode)["spec"]["replicas"] == 3
    both.call(scale(1))
    both.call(scale(1))
    both.by_hand(lambda outside: outside.edit("Deployment", decode, {"spec": {"replicas": 2}}, USER))


def test_what_cannot_be_changed_is_refused(both: Both) -> None:
    both.apply_all()
    binding = both.child("RoleBinding", f"{NAME}-gateway")
    binding["roleRef"]["name"] = "other"
    assert both.apply(binding) == "Malformed"
    pool = both.child("Deployment", f"{NAME}-decode")
    pool["spec"]["selector"]["matchLabels"]["more"] = "x"
    assert both.apply(pool) == "Malformed"
    kept = revision(InferenceService.read(both.service), list(both.wanted.values())[:2], "hash", 1)
    assert both.apply(kept) == ""
    assert both.apply({**kept, "revision": 2}) == ""
    assert both.apply({**kept, "data": {"children": []}}) == "Malformed"


def test_deletions_need_the_uid_and_wait_for_finalizers(both: Both) -> None:
    both.apply_all()
    service, budget = BY_KIND["Service"], BY_KIND["PodDisruptionBudget"]

    def delete(api: Api, uid: str | None = None) -> None:
        seen = api.get(service, both.namespace, NAME)["metadata"]["uid"]
        api.delete(service, both.namespace, NAME, uid=uid or seen)

    assert both.call(lambda api: delete(api, "00000000-0000-0000-0000-000000000000")) == "Conflict"
    assert both.call(lambda api: api.delete(budget, both.namespace, "no-such", uid="x")) == ""
    finalizers = {"metadata": {"finalizers": ["example.com/hold"]}}
    both.by_hand(lambda outside: outside.edit("Service", NAME, finalizers, USER))
    both.call(delete)
    both.apply(both.child("Service", NAME))
    both.by_hand(lambda outside: outside.edit("Service", NAME, {"metadata": {"finalizers": None}}, USER))
    assert both.call(lambda api: api.get(service, both.namespace, NAME)) == "Missing"
    both.apply(both.child("Service", NAME))


def test_creating_and_replacing_meet_conflicts_and_a_rehearsal_stores_nothing(both: Both) -> None:
    body = both.child("ConfigMap", f"{NAME}-gateway")
    resource = BY_KIND["ConfigMap"]
    both.call(lambda api: api.apply(resource, body, APPLIER, rehearse=True))
    both.call(lambda api: api.create(resource, body, USER))
    assert both.call(lambda api: api.create(resource, body, USER)) == "Conflict"

    def replace(api: Api, version: str | None = None) -> None:
        seen = api.get(resource, both.namespace, body["metadata"]["name"])
        seen["metadata"]["resourceVersion"] = version or seen["metadata"]["resourceVersion"]
        api.replace(resource, {**seen, "data": {"gateway.json": "[]"}}, USER)

    assert both.call(lambda api: replace(api, "1")) == "Conflict"
    both.call(replace)
    both.apply(body)


def test_the_garbage_collector_takes_what_a_deleted_service_owned(both: Both, platform: Platform) -> None:
    both.apply_all()
    both.hands.remove("InferenceService", NAME)
    both.fake.remove("InferenceService", NAME)
    both.fake.collect_garbage()
    assert both.fake.kinds() == []
    platform.wait_for("the children to go", lambda: not both.listed(both.real), 60)

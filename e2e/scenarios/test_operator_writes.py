"""The operator's own writes against a real API server: apply, drift, prune, scale, status, lease.

The services here are paused, so the operator on the cluster leaves their children alone and the tests write them.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from steelyard.api.labels import FIELD_MANAGER, PAUSED, SERVICE
from steelyard.api.service import InferenceService
from steelyard.api.status import (
    Condition,
    Decision,
    Memory,
    ObjectivesStatus,
    ObjectiveStatus,
    QuantizeStatus,
    RoleStatus,
    RolloutStatus,
    StartSeconds,
    Status,
)
from steelyard.apply.children import Changes, Owner, bring, claim, rehearse
from steelyard.apply.drift import difference, stamped
from steelyard.apply.lease import Elector
from steelyard.apply.revisions import store
from steelyard.apply.scale import scale
from steelyard.build.render import children, revision
from steelyard.catalog.accelerators import ACCELERATORS
from steelyard.decide.outcome import Rejected
from steelyard.decide.site import Site
from steelyard.observe.client import Api, Conflict, Malformed, connect
from steelyard.observe.resources import BY_KIND, DEPLOYMENT, INFERENCE_SERVICE
from steelyard.observe.snapshot import Observation, observe

from e2e.platform import EXAMPLES, Platform

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

SITE = Site("steelyard/gateway:none", "steelyard/engine:none", "Never", (), "monitoring", "steelyard-system")
TEMPLATE = {
    "metadata": {"labels": {"team": "a"}},
    "spec": {
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}}],
        "containers": [
            {"name": "engine", "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]},
            {"name": "logs", "image": "logs:1", "resources": {"limits": {"cpu": "1000m", "memory": "1024Mi"}}},
        ],
    },
}
ROLE = {
    "resources": {"requests": {"cpu": "0.25", "memory": "1024Mi"}, "limits": {"cpu": "1000m"}},
    "template": TEMPLATE,
}


@pytest.fixture(scope="module")
def api(platform: Platform) -> Api:
    return connect(str(platform.cluster.kubeconfig))


class Held:
    """A paused service and what the tests wrote for it."""

    def __init__(self, platform: Platform, api: Api, namespace: str) -> None:
        self.platform = platform
        self.api = api
        self.namespace = namespace

    def define(self, spec: dict[str, Any], name: str = "chat") -> None:
        """Create or change the service and bring its children."""
        body = {
            "apiVersion": "serving.steelyard.dev/v1alpha1",
            "kind": "InferenceService",
            "metadata": {"name": name, "namespace": self.namespace, "annotations": {PAUSED: "true"}},
            "spec": {"model": {"uri": "oci://steelyard/model-smollm2:1"}, **spec},
        }
        self.platform.apply(yaml.safe_dump(body), self.namespace)

    def wanted(self, name: str = "chat") -> list[dict[str, Any]]:
        body = self.api.get(INFERENCE_SERVICE, self.namespace, name)
        body.pop("status", None)
        return children(InferenceService.read(body), ACCELERATORS, SITE)

    def bring(self, name: str = "chat") -> Changes:
        uid = self.api.get(INFERENCE_SERVICE, self.namespace, name)["metadata"]["uid"]
        changes, live, owner = Changes(), self.seen(name).children, Owner(name, self.namespace, uid)
        claims = claim(self.api, owner, self.wanted(name), live)
        rehearse(self.api, claims)
        bring(self.api, owner, claims, live, changes)
        return changes

    def seen(self, name: str = "chat") -> Observation:
        found = observe(self.api, self.namespace, name)
        assert found is not None
        return found

    def edit(self, kind: str, name: str, patch: str) -> None:
        self.platform.kubectl("patch", kind, name, "-n", self.namespace, "--type=json", "-p", patch)


@pytest.fixture
def held(platform: Platform, api: Api, namespace: str) -> Held:
    return Held(platform, api, namespace)


SPECS: dict[str, dict[str, Any]] = {
    "disaggregated": {"prefill": ROLE, "decode": ROLE},
    "aggregated": {"topology": "Aggregated", "model": {"uri": "pvc://models/a.gguf"}, "aggregated": ROLE},
    "simulated": yaml.safe_load((EXAMPLES / "simulated.yaml").read_text())["spec"],
    "cached": {
        "model": {"uri": "hf://example/model", "cache": {"kind": "claim", "claim": "models", "files": ["*.gguf"]}},
        "engine": {"prepull": True},
    },
    "with-keys": {"routing": {"apiKeys": {"secretName": "keys"}, "replicas": 1, "requestTimeout": "1.5s"}},
}


@pytest.mark.parametrize("kind", SPECS)
def test_children_are_taken_as_they_are(held: Held, kind: str) -> None:
    held.define(SPECS[kind])
    wanted = held.wanted()
    assert len(held.bring().created) == len(wanted)
    live = held.seen().children
    for manifest in wanted:
        body = live[(manifest["kind"], manifest["metadata"]["name"])]
        assert difference(stamped(manifest), body) is None
    assert not held.bring()


def test_edits_are_repaired_and_the_users_additions_stay(held: Held) -> None:
    held.define({})
    held.bring()
    held.edit("networkpolicy", "chat-engine-kv", '[{"op": "add", "path": "/spec/ingress/-", "value": {}}]')
    held.edit("role", "chat-gateway", '[{"op": "add", "path": "/rules/0/verbs/-", "value": "delete"}]')
    held.edit("service", "chat", '[{"op": "remove", "path": "/metadata/labels"}]')
    held.platform.kubectl("label", "service", "chat-decode", "-n", held.namespace, "team=a")
    repaired = held.bring().repaired
    assert {place.split()[0] for place in repaired} == {
        "NetworkPolicy/chat-engine-kv",
        "Role/chat-gateway",
        "Service/chat",
    }
    assert held.platform.get("service", "chat-decode", held.namespace)["metadata"]["labels"]["team"] == "a"
    assert not held.bring()


def test_a_change_of_topology_prunes_and_no_field_of_the_old_is_left(held: Held) -> None:
    held.define({"prefill": ROLE, "routing": {"apiKeys": {"secretName": "keys"}}})
    held.bring()
    held.define({"topology": "Aggregated"})
    changes = held.bring()
    assert {"Deployment/chat-prefill", "Deployment/chat-decode", "Service/chat-decode"} <= set(changes.pruned)
    volumes = held.platform.get("deployment", "chat", held.namespace)["spec"]["template"]["spec"]["volumes"]
    assert [volume["name"] for volume in volumes] == ["settings"]
    assert not held.bring()


def test_an_object_of_somebody_else_is_never_taken_over(held: Held) -> None:
    held.platform.kubectl("create", "service", "clusterip", "chat", "--tcp=80:80", "-n", held.namespace)
    held.define({})
    with pytest.raises(Rejected, match="Service/chat"):
        held.bring()
    assert held.platform.items("deployment", held.namespace) == []
    labels = held.platform.get("service", "chat", held.namespace)["metadata"]["labels"]
    assert SERVICE not in labels


def test_a_child_that_the_api_server_refuses_stops_all_before_the_first_write(held: Held) -> None:
    held.define({"prefill": {"template": {"spec": {"tolerations": [{"key": "gpu", "colour": "red"}]}}}})
    with pytest.raises(Malformed, match="colour"):
        held.bring()
    assert held.seen().children == {}


def test_deletion_needs_the_uid_that_was_seen(held: Held) -> None:
    held.define({})
    held.bring()
    with pytest.raises(Conflict):
        held.api.delete(BY_KIND["Service"], held.namespace, "chat", uid="00000000-0000-0000-0000-000000000000")
    assert held.platform.get("service", "chat", held.namespace)


def test_replicas_belong_to_whoever_wrote_them(held: Held) -> None:
    """defilantech/LLMKube#1881 (B01): children applied again and again never take the number back."""
    held.define({})
    held.bring()
    decode = held.seen().snapshot.deployment_of("decode")
    assert decode is not None
    assert (decode.replicas, decode.replicas_written) == (1, False)
    scale(held.api, held.namespace, "chat-decode", 3)
    decode = held.seen().snapshot.deployment_of("decode")
    assert decode is not None
    assert (decode.replicas, decode.replicas_written) == (3, True)
    held.platform.kubectl("scale", "deployment", "chat-decode", "--replicas=2", "-n", held.namespace)
    held.edit("deployment", "chat-decode", '[{"op": "replace", "path": "/spec/revisionHistoryLimit", "value": 9}]')
    assert held.bring().repaired
    assert held.api.get(DEPLOYMENT, held.namespace, "chat-decode")["spec"]["replicas"] == 2


def test_a_revision_keeps_children_as_they_were_rendered(held: Held) -> None:
    held.define({"prefill": ROLE})
    wanted = held.wanted()
    body = held.api.get(INFERENCE_SERVICE, held.namespace, "chat")
    body.pop("status", None)
    for number in (1, 5):  # the same content again only moves its number
        store(held.api, revision(InferenceService.read(body), wanted, "hash", number))
    current = held.seen().snapshot.current
    assert current is not None
    assert (current.number, current.spec_hash) == (5, "hash")
    assert [dict(child) for child in current.children] == wanted
    assert len(held.seen().revisions) == 1


def test_every_field_of_the_status_is_stored(held: Held) -> None:
    """A schema that prunes what the operator writes makes every reconcile write again (B36, B37)."""
    held.define({})
    now = datetime(2026, 1, 1, tzinfo=UTC)
    latency = ObjectiveStatus(attainment=97.1, p50="210ms", p95="460ms", p99="900ms")
    decision = Decision(time=now, action="prefill 2→3", because=("demand",), limited_by="Budget")
    start = StartSeconds(scheduled=0.4, pulled=3, weights=20, ready=8, total=31.4)
    counts = RoleStatus(desired=3, ready=1, starting=1, draining=1, revision="r", start_seconds=start)
    rollout = RolloutStatus(
        revision="chat-1", since=now, prefill="1/3", decode="0/3", objectives_were_met=True, paused="80 % met"
    )
    status = Status(
        observed_generation=1,
        model="m",
        url="http://chat",
        ratio="1:2",
        ready="1/3",
        prefill=counts,
        decode=counts,
        aggregated=counts,
        objectives=ObjectivesStatus(time_to_first_token=latency, time_per_output_token=latency, attainment=96.4),
        memory=Memory(weights="34Gi", kv_cache="61Gi", tokens=310000),
        rollout=rollout,
        quantization=(QuantizeStatus(job="j", recipe="int8", folder="f", state="Running", progress="layer 1 of 30"),),
        decision=decision,
        history=(decision,),
        conditions=(
            Condition(
                type="Accepted",
                status="True",
                reason="Valid",
                message="m",
                last_transition_time=now,
                observed_generation=1,
            ),
        ),
    )
    given = status.manifest()
    assert set(given) == {field.alias for field in Status.model_fields.values()}, "a new field belongs into this test"
    body = {
        "apiVersion": "serving.steelyard.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": "chat", "namespace": held.namespace},
        "status": given,
    }
    assert held.api.apply(INFERENCE_SERVICE, body, FIELD_MANAGER, subresource="status")["status"] == given


def test_of_many_replicas_one_leads(api: Api, namespace: str) -> None:
    electors = [Elector(api, namespace, "contest", f"replica-{number}") for number in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda elector: elector.step(0), electors))
    leaders = [elector for elector in electors if elector.leading(1)]
    assert len(leaders) == 1
    others = [elector for elector in electors if elector is not leaders[0]]
    assert not any(elector.step(2) for elector in others)
    leaders[0].release(3)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda elector: elector.step(4), others))
    assert sum(elector.leading(5) for elector in electors) == 1

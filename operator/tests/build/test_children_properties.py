"""Whatever is accepted, every child is valid (invariant 8), for services drawn at random.

The checks are Kubernetes' own rules as far as they can be stated in a few lines; the real API server judges the same
manifests in e2e/scenarios.
"""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import pytest
from engine_bodies import BASES
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from operator_bodies import KNOWN, SITE, merged, service, simulated
from steelyard.api.labels import ENGINE_PORT, EVENTS_PORT, KV_PORT, POOL, ROLE, SERVICE
from steelyard.api.service import InferenceService
from steelyard.build.meta import Body
from steelyard.build.render import children
from steelyard.decide.accept import refusals
from steelyard.decide.site import Site

DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
LABEL_KEY = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")

NAMES = st.from_regex(re.compile(r"[a-z][a-z0-9-]{0,61}[a-z0-9]", re.ASCII), fullmatch=True)
CORES = st.sampled_from(["100m", "1", "2500m", "4"])


@st.composite
def services(draw: st.DrawFn) -> InferenceService:
    """Any service that could be written, most of which are accepted."""
    roles = ["aggregated"] if draw(st.booleans()) else ["prefill", "decode"]
    spec: dict[str, Any] = {
        "topology": "Aggregated" if roles == ["aggregated"] else "Disaggregated",
        "model": {"contextLength": draw(st.integers(16, 200_000))},
        "batching": {"strategy": draw(st.sampled_from(["static", "continuous", "chunked"]))},
        "routing": {
            "replicas": draw(st.integers(1, 5)),
            "requestTimeout": draw(st.sampled_from(["1s", "90s", "1h"])),
            "apiKeys": draw(st.sampled_from([None, {"secretName": "keys"}])),
        },
    }
    for role in roles:
        low = draw(st.integers(1, 5))
        block: dict[str, Any] = {"replicas": {"min": low, "max": low + draw(st.integers(0, 5))}}
        if draw(st.booleans()):
            block["resources"] = {"limits": {"cpu": draw(CORES), "memory": "1Gi"}}
        if draw(st.booleans()):
            key = draw(st.sampled_from(["team", "example.com/zone"]))
            block["template"] = {
                "metadata": {"labels": {key: "x"}},
                "spec": {"containers": [{"name": "sidecar", "image": "s:1"}]},
            }
        spec[role] = block
    if draw(st.booleans()):
        spec = simulated(spec)
        spec["accelerator"] = draw(st.sampled_from(sorted(KNOWN)))
    name = draw(st.text("abcdefghijklmnop/.:A", min_size=1, max_size=90).map(lambda text: "m" + text))
    spec["model"]["servedName"] = name
    return service(spec, name=draw(NAMES), namespace=draw(NAMES))


def pods_of(rendered: list[Body]) -> list[Body]:
    return [child["spec"]["template"] for child in rendered if child["kind"] == "Deployment"]


def selected(labels: dict[str, str], selector: dict[str, str]) -> bool:
    return selector.items() <= labels.items()


@settings(max_examples=150, deadline=None)
@given(services())
def test_every_child_of_an_accepted_service_is_valid(given_service: InferenceService) -> None:
    if refusals(given_service, KNOWN):
        return
    rendered = children(given_service, KNOWN, SITE)
    keys = [(child["kind"], child["metadata"]["name"]) for child in rendered]
    assert len(set(keys)) == len(keys)
    for child in rendered:
        meta = child["metadata"]
        assert DNS_LABEL.fullmatch(meta["name"]), meta["name"]
        assert meta["namespace"] == given_service.namespace, "B05, B06: no owner in another namespace"
        assert [owner["uid"] for owner in meta["ownerReferences"]] == ["uid-1"]
        assert meta["labels"][SERVICE] == given_service.name
        check_labels(meta["labels"])
        if child["kind"] == "Deployment":
            assert "replicas" not in child["spec"]
    for template in pods_of(rendered):
        check_labels(template["metadata"]["labels"])
        check_pod(template["spec"])
    json.dumps(rendered)


def check_labels(labels: dict[str, str]) -> None:
    for key, value in labels.items():
        assert LABEL_KEY.fullmatch(key), key
        assert LABEL_VALUE.fullmatch(value), (key, value)


def check_pod(spec: Body) -> None:
    """Restricted pod security, mounts that exist, ports that are disjoint, a grace period above every drain."""
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["enableServiceLinks"] is False, "B28"
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    volumes = {volume["name"] for volume in spec["volumes"]}
    assert len(volumes) == len(spec["volumes"])
    containers = [*spec.get("initContainers", []), *spec["containers"]]
    assert len({container["name"] for container in containers}) == len(containers)
    for container in containers:
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert {mount["name"] for mount in container.get("volumeMounts", [])} <= volumes
    ports = [port["containerPort"] for container in spec["containers"] for port in container.get("ports", [])]
    assert len(set(ports)) == len(ports), "C19"
    args = spec["containers"][0]["args"]
    drain, lease = (
        int(args[args.index(flag) + 1]) if flag in args else 0 for flag in ("--drain-timeout", "--kv-lease")
    )
    assert spec["terminationGracePeriodSeconds"] > drain + lease, "E08: a drain that is cut loses requests"


@settings(max_examples=60, deadline=None)
@given(services())
def test_selectors_find_their_pods_and_no_others(given_service: InferenceService) -> None:
    if refusals(given_service, KNOWN):
        return
    rendered = children(given_service, KNOWN, SITE)
    deployments = [child for child in rendered if child["kind"] == "Deployment"]
    pods = {child["metadata"]["name"]: child["spec"]["template"]["metadata"]["labels"] for child in deployments}
    for child in deployments:
        selector = child["spec"]["selector"]["matchLabels"]
        assert ROLE not in selector, "a role change must not take a pod out of its Deployment"
        assert [name for name, labels in pods.items() if selected(labels, selector)] == [child["metadata"]["name"]]
    for child in rendered:
        if child["kind"] in ("Service", "PodDisruptionBudget"):
            selector = child["spec"]["selector"]
            selector = selector.get("matchLabels", selector)
            assert [name for name, labels in pods.items() if selected(labels, selector)] == [child["metadata"]["name"]]
        if child["kind"] == "NetworkPolicy":
            assert any(selected(labels, child["spec"]["podSelector"]["matchLabels"]) for labels in pods.values())


@settings(max_examples=30, deadline=None)
@given(services())
def test_a_container_is_not_signalled_in_the_instant_it_starts(given_service: InferenceService) -> None:
    """SIGTERM before pid 1 can catch it is dropped by the kernel, and the pod would stay for its whole grace period."""
    assume(not refusals(given_service, KNOWN))
    for template in pods_of(children(given_service, KNOWN, SITE)):
        ours = template["spec"]["containers"][0]
        wait = ours["lifecycle"]["preStop"]["sleep"]["seconds"]
        assert 1 <= wait < template["spec"]["terminationGracePeriodSeconds"]


@given(st.permutations(["prefill", "decode"]))
def test_a_relabelled_pod_changes_its_service_and_keeps_its_pool(roles: list[str]) -> None:
    rendered = children(service(), KNOWN, SITE)
    born, other = roles
    pod = next(t for t in pods_of(rendered) if t["metadata"]["labels"].get(POOL) == born)["metadata"]["labels"]
    flipped = pod | {ROLE: other}
    finds = {
        (child["kind"], child["metadata"]["name"])
        for child in rendered
        if child["kind"] in ("Service", "PodDisruptionBudget")
        and selected(flipped, child["spec"]["selector"].get("matchLabels", child["spec"]["selector"]))
    }
    assert finds == {("Service", f"chat-{other}"), ("PodDisruptionBudget", f"chat-{born}")}


def test_model_names_never_reach_labels_or_names() -> None:
    """opendatahub-io/odh-dashboard#3062 (B20): an organisation prefix with a slash crashed the controller."""
    name = "ibm-granite/granite-3b-code-instruct-accelerator"
    rendered = children(service({"model": {"servedName": name}}), KNOWN, SITE)
    for child in rendered:
        assert "granite" not in json.dumps(child["metadata"])
    assert name in pods_of(rendered)[0]["spec"]["containers"][0]["args"]


def test_a_long_namespace_is_no_ones_business() -> None:
    """kserve/kserve#4807 (B15): name and namespace joined in a host name failed though no ingress was asked for."""
    rendered = children(
        service({}, name="t-44e43bb2", namespace="a-project-namespace-with-fifty-characters-in-the-name"), KNOWN, SITE
    )
    assert all(len(child["metadata"]["name"]) <= 63 for child in rendered)


@pytest.mark.parametrize("name", ["vllm", "nixl", "kubernetes"])
def test_names_that_collide_with_service_links_start(name: str) -> None:
    """B28: a Service named vllm turned the engine's own port variable into a URL."""
    assert all(
        pod["spec"]["enableServiceLinks"] is False for pod in pods_of(children(service({}, name=name), KNOWN, SITE))
    )


def test_accelerators_are_counted_by_the_operator() -> None:
    """vllm-project/production-stack (C30): pods without a GPU request met on one GPU."""
    rendered = children(service(simulated()), KNOWN, SITE)
    for pod in pods_of(rendered):
        if pod["spec"]["containers"][0]["name"] == "engine":
            assert pod["spec"]["containers"][0]["resources"]["limits"] == {"steelyard.dev/simulated-accelerator": "1"}
            assert "nodeSelector" not in pod["spec"], "simulated hardware is on any node"
    for pod in pods_of(children(service(), KNOWN, SITE)):
        assert "steelyard.dev/simulated-accelerator" not in json.dumps(pod)


def test_network_policies_have_one_direction_and_one_purpose() -> None:
    """G01, G02: engines take requests from the gateway alone, KV traffic from engines of the same service alone."""
    rendered = {
        c["metadata"]["name"]: c["spec"] for c in children(service(), KNOWN, SITE) if c["kind"] == "NetworkPolicy"
    }
    assert set(rendered) == {
        *(
            "chat-engine-requests",
            "chat-engine-kv",
            "chat-engine-metrics",
            "chat-gateway-requests",
            "chat-gateway-metrics",
        )
    }
    for spec in rendered.values():
        assert spec["policyTypes"] == ["Ingress"]
        assert len(spec["ingress"]) == 1
        assert len(spec["ingress"][0]["ports"]) == 1
    kv = rendered["chat-engine-kv"]["ingress"][0]
    assert kv["ports"][0]["port"] == KV_PORT
    assert kv["from"] == [{"podSelector": rendered["chat-engine-kv"]["podSelector"]}]
    requests = rendered["chat-engine-requests"]["ingress"][0]
    assert requests["ports"][0]["port"] == ENGINE_PORT
    assert requests["from"][0]["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "gateway"
    assert "from" not in rendered["chat-gateway-requests"]["ingress"][0]


def test_nobody_reads_metrics_where_no_namespace_is_named() -> None:
    site = Site(gateway_image="g", engine_image="e")
    names = [c["metadata"]["name"] for c in children(service(), KNOWN, site) if c["kind"] == "NetworkPolicy"]
    assert names == ["chat-engine-requests", "chat-engine-kv", "chat-gateway-requests"]


def test_events_about_blocks_reach_only_pods_with_the_services_label() -> None:
    """They tell the tokens of prompts, so a neighbour in the namespace must not hear them unasked."""
    of = service(merged(BASES["vllm"], {"cache": {"events": True}}))
    [events] = [c["spec"] for c in children(of, KNOWN, SITE) if c["metadata"]["name"] == "chat-engine-events"]
    [rule] = events["ingress"]
    assert rule["ports"] == [{"port": EVENTS_PORT, "protocol": "TCP"}]
    assert rule["from"] == [{"podSelector": {"matchLabels": {SERVICE: "chat"}}}]


def test_unset_true_and_false_are_three_things() -> None:
    """verl-project/verl#7624 (C28), in our terms: what is not set renders the resolved default, never silence."""
    for strategy, written in itertools.product(["static", "chunked"], [True, False]):
        spec = {"batching": {"strategy": strategy} if written else {}}
        args = pods_of(children(service(merged({"model": {"contextLength": 64}}, spec)), KNOWN, SITE))[0]["spec"][
            "containers"
        ][0]["args"]
        assert args[args.index("--batching") + 1] == (strategy if written else "chunked")


def test_only_the_simulated_engine_has_settings_and_a_change_of_them_rolls_it() -> None:
    def engine_pod(spec: dict[str, Any]) -> Body:
        return next(p for p in pods_of(children(service(spec), KNOWN, SITE)) if POOL in p["metadata"]["labels"])

    slow, fast = engine_pod(simulated({"accelerator": "h100"})), engine_pod(simulated())
    assert slow["metadata"]["annotations"] != fast["metadata"]["annotations"]
    assert "annotations" not in engine_pod({})["metadata"]


def test_gateway_settings_change_without_rolling_the_gateway() -> None:
    def gateway(spec: dict[str, Any]) -> tuple[str, Body]:
        rendered = children(service(spec), KNOWN, SITE)
        data = next(c["data"] for c in rendered if c["kind"] == "ConfigMap")["gateway.json"]
        return data, next(c for c in rendered if c["kind"] == "Deployment" and c["metadata"]["name"] == "chat")

    before, after = gateway({}), gateway({"objectives": {"timeToFirstToken": "1s"}})
    assert before[0] != after[0]
    assert before[1] == after[1]


def test_further_pods_of_a_replica_are_reached_by_their_own_service_alone() -> None:
    """They compute for the leader on ports chosen at run time, and answer nobody else."""
    wide = {
        "model": {"uri": "hf://o/m"},
        "engine": {"name": "vllm"},
        "accelerator": "h200",
        "parallelism": {"tensor": 8, "pipeline": 2},
    }
    made = children(service(wide), KNOWN, SITE)
    follower = next(body for body in made if body["kind"] == "LeaderWorkerSet")["spec"]["leaderWorkerTemplate"]
    labels = follower["workerTemplate"]["metadata"]["labels"]
    policies = [body["spec"] for body in made if body["kind"] == "NetworkPolicy"]
    [mine] = [one for one in policies if one["podSelector"]["matchLabels"].items() <= labels.items()]
    [rule] = mine["ingress"]
    assert "ports" not in rule
    assert all(peer["podSelector"]["matchLabels"][SERVICE] == "chat" for peer in rule["from"])
    narrow = children(service({**wide, "parallelism": {"tensor": 8}}), KNOWN, SITE)
    assert "chat-engine-followers" not in {body["metadata"]["name"] for body in narrow}

"""The charts: what they render, what they refuse, and that they say what the code says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from operator_bodies import SITE, service_body, simulated
from rendering import CHARTS, NAMES, RefusedError, helm, one, rendered
from steelyard.api import crd
from steelyard.api.quantities import Quantity
from steelyard.api.service import InferenceService
from steelyard.apply.access import ACCESS
from steelyard.build import render
from steelyard.catalog.accelerators import ACCELERATORS
from steelyard.cli import generated
from steelyard.run.settings import load
from syrupy.assertion import SnapshotAssertion

from charts import generate, values

DIGEST = "sha256:" + "ab" * 32
ROOT = CHARTS.parent


@pytest.mark.parametrize("chart", NAMES)
def test_lint(chart: str) -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHARTS / chart))


def test_repository_holds_what_the_code_says() -> None:
    assert generated.difference(generate.files()) == "", "run `make generate`"


CASES: dict[str, dict[str, Any]] = {
    "default": {},
    "namespaced": {
        "watchNamespaces": ["team-a", "team-b"],
        "prometheusNamespace": "monitoring",
        "replicas": 1,
        "accelerators": {"install": False},
        "userRoles": {"install": False},
    },
    "digests": {
        "registry": "registry.example:5000/mirror",
        "images": {name: {"tag": "1.2.3", "digest": DIGEST} for name in ("operator", "gateway", "engine")},
        "imagePullSecrets": [{"name": "regcred"}],
        "priorityClassName": "system-cluster-critical",
        "podAnnotations": {"example.org/a": "b"},
    },
}
PROMETHEUS = {
    "url": "https://prometheus.monitoring.svc:9091/sub",
    "secret": "prometheus-access",
    "bearerTokenFile": "/etc/prometheus-access/token",
    "caFile": "/etc/prometheus-access/ca.crt",
}


@pytest.mark.parametrize("case", CASES)
def test_snapshot(case: str, snapshot: SnapshotAssertion) -> None:
    objects = [o for o in rendered("steelyard", **CASES[case]) if o["kind"] != "Accelerator"]
    assert yaml.safe_dump_all(objects, width=120) == snapshot


@pytest.mark.parametrize("topology", ["Disaggregated", "Aggregated"])
def test_demo_snapshot(topology: str, snapshot: SnapshotAssertion) -> None:
    objects = rendered("steelyard-demo", namespace="demo", topology=topology)
    assert yaml.safe_dump_all(objects, width=120) == snapshot


@pytest.mark.parametrize(
    ("chart", "given", "says"),
    [
        ("steelyard", {"replica": 2}, "replica"),
        ("steelyard", {"replicas": 0}, "minimum"),
        ("steelyard", {"images": {"operator": {"repository": "a", "sha": "b"}}}, "sha"),
        ("steelyard", {"images": {"vllm": {"repository": "a"}}}, "vllm"),
        ("steelyard", {"images": {"operator": {"repository": "steelyard/operator:tag@x"}}}, "repository"),
        ("steelyard", {"images": {"operator": {"digest": "sha256:12"}}}, "digest"),
        ("steelyard", {"imagePullPolicy": "Sometimes"}, "imagePullPolicy"),
        ("steelyard", {"imagePullSecrets": ["regcred"]}, "imagePullSecrets"),
        ("steelyard", {"watchNamespaces": "team-a"}, "watchNamespaces"),
        ("steelyard", {"watchNamespaces": ["Team_A"]}, "watchNamespaces"),
        ("steelyard", {"resources": {"limits": {"memory": "1 GB"}}}, "memory"),
        ("steelyard-crds", {"install": False}, "install"),
        ("steelyard-demo", {"topology": "Both"}, "topology"),
        ("steelyard-demo", {"model": {"uri": "http://example.org"}}, "uri"),
    ],
)
def test_bad_values_are_refused_by_name(chart: str, given: dict[str, Any], says: str) -> None:
    with pytest.raises(RefusedError, match=says):
        rendered(chart, **given)


@pytest.mark.parametrize("chart", NAMES)
def test_default_values_fit_their_schema_and_every_object_is_closed(chart: str) -> None:
    schema = values.schema(values.CHARTS[chart])
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(yaml.safe_load((CHARTS / chart / "values.yaml").read_text()) or {}, schema)
    typed = [schema, *schema.get("$defs", {}).values()]
    assert [node.get("title") for node in typed if node.get("additionalProperties") is not False] in ([], ["Free"])


def test_as_a_part_of_another_chart_it_takes_helms_global_values() -> None:
    jsonschema.validate({"global": {"any": 1}}, values.schema(values.CHARTS["steelyard"]))


def rights(objects: list[dict[str, Any]], kinds: tuple[str, ...], names: tuple[str, ...]) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for body in objects
        if body["kind"] in kinds and body["metadata"]["name"] in names
        for rule in body["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def wanted(*scopes: str) -> set[tuple[str, str, str]]:
    return {(a.group, a.resource, verb) for a in ACCESS if a.scope in scopes for verb in a.verbs}


def test_rights_are_exactly_what_the_code_uses() -> None:
    objects = rendered("steelyard")
    assert rights(objects, ("ClusterRole",), ("steelyard-operator",)) == wanted("watched", "cluster")
    assert rights(objects, ("Role",), ("steelyard-operator-leader",)) == wanted("own")


def test_namespaced_rights_end_at_the_watched_namespaces() -> None:
    """A ServiceAccount without cluster rights must do (dask/dask-kubernetes#916, zalando-incubator/kopf#32)."""
    objects = rendered("steelyard", watchNamespaces=["team-a", "team-b"])
    assert rights(objects, ("ClusterRole",), ("steelyard-operator",)) == {
        ("serving.steelyard.dev", "accelerators", verb) for verb in ("get", "list", "watch")
    }
    roles = [o for o in objects if o["kind"] == "Role" and o["metadata"]["name"] == "steelyard-operator"]
    assert [role["metadata"]["namespace"] for role in roles] == ["team-a", "team-b"]
    for role in roles:
        assert rights([role], ("Role",), ("steelyard-operator",)) == wanted("watched")
    bindings = [o for o in objects if o["kind"] == "RoleBinding"]
    assert {b["metadata"]["namespace"] for b in bindings} == {"team-a", "team-b", "steelyard-system"}
    assert all(b["subjects"][0]["namespace"] == "steelyard-system" for b in bindings)


@pytest.mark.parametrize("namespaces", [[], ["team-a"]])
def test_no_wildcards_no_secrets_no_exec(namespaces: list[str]) -> None:
    """Wildcards were there and, once narrowed, rights of one mode were forgotten (ai-dynamo/dynamo#8907)."""
    ours = ("steelyard-operator", "steelyard-operator-leader", "steelyard-view", "steelyard-edit")
    given = rights(rendered("steelyard", watchNamespaces=namespaces), ("Role", "ClusterRole"), ours)
    assert not any("*" in part for right in given for part in right)
    assert not {resource for _, resource, _ in given} & {"secrets", "pods/exec", "nodes", "namespaces", "pods/attach"}
    assert not {verb for _, _, verb in given} & {"escalate", "bind", "impersonate"}


def test_the_operator_holds_what_it_grants_to_gateways() -> None:
    """Kubernetes refuses to create a Role with rights that its creator lacks; the gateway reads pods."""
    assert {("", "pods", verb) for verb in ("get", "list", "watch")} <= wanted("watched")


def test_the_leases_name_is_the_settings_name() -> None:
    objects = rendered("steelyard", release="blue")
    settings = yaml.safe_load(one(objects, "ConfigMap")["data"]["operator.yaml"])
    narrowed = [rule for rule in one(objects, "Role")["rules"] if "resourceNames" in rule]
    assert settings["leaseName"] == "blue-steelyard-operator"
    assert [rule["resourceNames"] for rule in narrowed] == [["blue-steelyard-operator"]]
    assert "create" not in narrowed[0]["verbs"]


def test_settings_follow_the_values() -> None:
    settings = yaml.safe_load(one(rendered("steelyard", **CASES["digests"]), "ConfigMap")["data"]["operator.yaml"])
    assert settings["images"]["engine"] == f"registry.example:5000/mirror/steelyard/engine:1.2.3@{DIGEST}"
    assert settings["prometheusNamespace"] is None
    assert settings["watchNamespaces"] == []


NO_QUANTIZER: dict[str, dict[str, Any]] = {
    "values that an earlier chart stored": {"images": {"quantize": None}},
    "an installation that wants none": {"images": {"quantize": {"repository": ""}}},
}


@pytest.mark.parametrize("case", NO_QUANTIZER)
def test_without_an_image_for_it_nothing_is_quantized(case: str, tmp_path: Path) -> None:
    """`helm upgrade --reuse-values` takes the values of the chart that was installed, which knew of no such image."""
    body = one(rendered("steelyard", **NO_QUANTIZER[case]), "ConfigMap")
    (tmp_path / "operator.yaml").write_text(body["data"]["operator.yaml"])
    settings = load(tmp_path / "operator.yaml")
    assert settings.images.quantize is None
    assert settings.images.engine == "steelyard/engine:0.1.0"


@pytest.mark.parametrize("case", CASES)
def test_the_operator_reads_the_settings_it_is_given(case: str, tmp_path: Path) -> None:
    """The program refuses unknown settings, so chart and program must agree on every name."""
    body = one(rendered("steelyard", **CASES[case]), "ConfigMap")
    (tmp_path / "operator.yaml").write_text(body["data"]["operator.yaml"])
    settings = load(tmp_path / "operator.yaml")
    assert settings.watch_namespaces == tuple(CASES[case].get("watchNamespaces", ()))
    assert settings.lease_name == body["metadata"]["name"]


def test_every_pod_has_the_pull_secrets_and_none_when_none_are_given() -> None:
    """vllm-project/production-stack#761, ai-dynamo/dynamo#1225."""
    pod = one(rendered("steelyard", imagePullSecrets=[{"name": "regcred"}]), "Deployment")["spec"]["template"]["spec"]
    assert pod["imagePullSecrets"] == [{"name": "regcred"}]
    settings = one(rendered("steelyard", imagePullSecrets=[{"name": "regcred"}]), "ConfigMap")["data"]["operator.yaml"]
    assert yaml.safe_load(settings)["imagePullSecrets"] == [{"name": "regcred"}]
    assert "imagePullSecrets" not in one(rendered("steelyard"), "Deployment")["spec"]["template"]["spec"]


def test_null_removes_a_default_of_the_security_context() -> None:
    """A default user id hung upgrades on clusters that assign their own (kubestellar/console#6351)."""
    context = one(rendered("steelyard", podSecurityContext={"runAsUser": None, "fsGroup": None}), "Deployment")["spec"]
    assert context["template"]["spec"]["securityContext"] == {
        "runAsGroup": 65532, "runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"},
    }  # fmt: skip


def test_pods_meet_the_restricted_profile() -> None:
    """The fields that Kubernetes' Pod Security Standard `restricted` asks for."""
    pod = one(rendered("steelyard"), "Deployment")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    for container in pod["containers"]:
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["readOnlyRootFilesystem"] is True
        assert not any("hostPort" in port for port in container["ports"])
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    assert {next(k for k in volume if k != "name") for volume in pod["volumes"]} <= {"configMap", "emptyDir"}


def test_crds_are_kept_and_are_ours() -> None:
    """Uninstalling must not delete every service (mogenius/renovate-operator#136); upgrading must upgrade (calico#6880)."""
    objects = rendered("steelyard-crds")
    assert len(objects) == len(crd.KINDS)
    for kind, body in zip(sorted(crd.KINDS, key=lambda k: k.plural), objects, strict=True):
        assert body["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
        assert body == crd.definition(kind)


def test_the_catalogue_is_installed_with_equal_figures() -> None:
    objects = {o["metadata"]["name"]: o for o in rendered("steelyard") if o["kind"] == "Accelerator"}
    assert set(objects) == set(ACCELERATORS)
    for name, accelerator in ACCELERATORS.items():
        again = type(accelerator).read(objects[name])
        assert again.spec == accelerator.spec


def test_the_catalogue_can_be_left_to_another_release() -> None:
    kinds = {o["kind"] for o in rendered("steelyard", accelerators={"install": False})}
    assert "Accelerator" not in kinds


def test_policies_have_one_direction_and_open_metrics_to_prometheus_alone() -> None:
    closed = one(rendered("steelyard"), "NetworkPolicy")["spec"]
    assert (closed["policyTypes"], closed["ingress"]) == (["Ingress"], [])
    (rule,) = one(rendered("steelyard", prometheusNamespace="monitoring"), "NetworkPolicy")["spec"]["ingress"]
    assert rule["from"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    assert rule["ports"] == [{"port": "metrics", "protocol": "TCP"}]


@pytest.mark.parametrize(("replicas", "budgets"), [(1, 0), (2, 1)])
def test_a_budget_only_where_it_leaves_room(replicas: int, budgets: int) -> None:
    kinds = [o["kind"] for o in rendered("steelyard", replicas=replicas)]
    assert kinds.count("PodDisruptionBudget") == budgets


@pytest.mark.parametrize("release", ["steelyard", "x", "a" * 53])
def test_names_come_from_the_release_and_are_valid(release: str) -> None:
    objects = [
        o for o in rendered("steelyard", namespace="platform-llm", release=release) if o["kind"] != "Accelerator"
    ]
    assert all(len(o["metadata"]["name"]) <= 63 + len("-leader") for o in objects)
    placed = [o for o in objects if "namespace" in o["metadata"]]
    assert {o["metadata"]["namespace"] for o in placed} == {"platform-llm"}


def test_every_object_says_who_owns_it() -> None:
    for body in rendered("steelyard"):
        assert body["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "Helm", body["metadata"]["name"]


def test_new_settings_roll_the_operator() -> None:
    def checksum(**given: Any) -> str:
        pod = one(rendered("steelyard", **given), "Deployment")["spec"]["template"]
        return str(pod["metadata"]["annotations"]["checksum/settings"])

    assert checksum() != checksum(prometheusNamespace="monitoring")
    assert checksum() == checksum(replicas=3)


def test_limits_are_not_below_requests() -> None:
    resources = one(rendered("steelyard"), "Deployment")["spec"]["template"]["spec"]["containers"][0]["resources"]
    for name, limit in resources["limits"].items():
        assert Quantity(limit).value >= Quantity(resources["requests"][name]).value


def test_prometheus_is_named_in_the_settings_and_its_secret_is_mounted(tmp_path: Path) -> None:
    objects = rendered("steelyard", prometheus=PROMETHEUS, tickSeconds=7)
    file = tmp_path / "operator.yaml"
    file.write_text(one(objects, "ConfigMap")["data"]["operator.yaml"])
    settings = load(file)
    assert settings.tick_seconds == 7
    assert settings.prometheus is not None
    assert settings.prometheus.manifest() == {
        "url": PROMETHEUS["url"],
        "bearerTokenFile": PROMETHEUS["bearerTokenFile"],
        "caFile": PROMETHEUS["caFile"],
        "timeoutSeconds": 4.0,
    }
    pod = one(objects, "Deployment")["spec"]["template"]["spec"]
    assert {"name": "prometheus", "secret": {"secretName": "prometheus-access"}} in pod["volumes"]
    mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    assert mounts["prometheus"] == "/etc/prometheus-access"


def test_a_password_of_prometheus_is_named_with_its_user_or_refused(tmp_path: Path) -> None:
    given = {"url": PROMETHEUS["url"], "username": "us", "passwordFile": "/etc/prometheus-access/password"}
    file = tmp_path / "operator.yaml"
    file.write_text(one(rendered("steelyard", prometheus=given), "ConfigMap")["data"]["operator.yaml"])
    found = load(file).prometheus
    assert found is not None
    assert found.manifest() == {**given, "timeoutSeconds": 4.0}
    with pytest.raises(RefusedError, match="give both or neither"):
        rendered("steelyard", prometheus={**given, "username": ""})
    with pytest.raises(RefusedError, match="two ways in"):
        rendered("steelyard", prometheus={**given, "bearerTokenFile": PROMETHEUS["bearerTokenFile"]})


def test_without_an_address_the_operator_has_no_prometheus(tmp_path: Path) -> None:
    file = tmp_path / "operator.yaml"
    file.write_text(one(rendered("steelyard"), "ConfigMap")["data"]["operator.yaml"])
    assert load(file).prometheus is None


@pytest.mark.parametrize(
    ("given", "namespaces"),
    [({}, {"any": True}), ({"watchNamespaces": ["team-a"]}, {"matchNames": ["team-a"]})],
    ids=["all", "namespaced"],
)
def test_pod_monitors_find_the_pods_that_the_operator_makes(given: dict[str, Any], namespaces: dict[str, Any]) -> None:
    """The labels and the names of ports are those of rendered engines and gateways."""
    wanted = {"podMonitors": True, "labels": {"release": "mine"}}
    *monitors, own = [o for o in rendered("steelyard", monitoring=wanted, **given) if o["kind"] == "PodMonitor"]
    assert [monitor["spec"]["namespaceSelector"] for monitor in monitors] == [namespaces] * 2
    assert {monitor["metadata"]["labels"]["release"] for monitor in (*monitors, own)} == {"mine"}
    deployment = one(rendered("steelyard"), "Deployment")["spec"]["template"]
    assert own["spec"]["selector"]["matchLabels"].items() <= deployment["metadata"]["labels"].items()
    ports = {port["name"] for port in deployment["spec"]["containers"][0]["ports"]}
    assert {endpoint["port"] for endpoint in own["spec"]["podMetricsEndpoints"]} <= ports
    service = InferenceService.read(service_body(simulated()))
    found = set()
    for child in render.children(service, ACCELERATORS, SITE):
        if child["kind"] != "Deployment":
            continue
        template = child["spec"]["template"]
        ports = {port["name"] for container in template["spec"]["containers"] for port in container["ports"]}
        (monitor,) = [
            m
            for m in monitors
            if m["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
        ]
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        assert endpoint["port"] in ports
        assert endpoint["interval"] == "5s"
        found.add(monitor["metadata"]["name"])
    assert len(found) == 2


def test_pod_monitors_are_left_out_where_their_kind_may_be_missing() -> None:
    assert not [o for o in rendered("steelyard") if o["kind"] == "PodMonitor"]

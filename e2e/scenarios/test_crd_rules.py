"""The API server itself judges as the offline tests say: every CEL rule accepts and refuses, defaults are filled in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from steelyard.api.rules import RULES, Rule, sample
from steelyard.api.service import InferenceService
from steelyard.build.render import children
from steelyard.catalog.accelerators import ACCELERATORS
from steelyard.decide.site import Site

from e2e.cluster import Cluster, ClusterError

pytestmark = pytest.mark.cluster
EXAMPLES = sorted((Path(__file__).parents[2] / "docs" / "examples").glob("*.yaml"))

SITE = Site("steelyard/gateway:none", "steelyard/engine:none", prometheus_namespace="monitoring")

each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)


def tried(cluster: Cluster, body: dict[str, Any]) -> dict[str, Any]:
    """The object as the API server would store it; nothing is stored. Raises ClusterError with its refusal."""
    made = cluster.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", input=json.dumps(body))
    return dict(json.loads(made))


@each_rule
def test_accepts(cluster: Cluster, rule: Rule) -> None:
    tried(cluster, sample(rule.accept))


@each_rule
def test_rejects_with_its_message(cluster: Cluster, rule: Rule) -> None:
    with pytest.raises(ClusterError) as refusal:
        tried(cluster, sample(rule.reject))
    assert rule.message in str(refusal.value)


def test_stored_defaults_are_the_types_defaults(cluster: Cluster) -> None:
    body = sample({"spec": {"prefill": {}, "routing": {}}})
    stored = tried(cluster, body)
    assert stored["spec"] != body["spec"]
    assert InferenceService.read(stored).spec == InferenceService.read(body).spec


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"decode": {"replicas": {"min": 0}}}, "spec.decode.replicas.min"),
        ({"decode": {"replica": {"min": 1}}}, "replica"),
        ({"engine": {"name": "unheard-of"}}, "spec.engine.name"),
        ({"objectives": {"timeToFirstToken": "fast"}}, "spec.objectives.timeToFirstToken"),
        ({"decode": {"template": {"spec": {"hostNetwork": True}}}}, "hostNetwork"),
        ({"routing": {"limits": {"bodyBytes": -1}}}, "spec.routing.limits.bodyBytes"),
    ],
)
def test_schema_refuses_by_field(cluster: Cluster, spec: dict[str, Any], says: str) -> None:
    with pytest.raises(ClusterError, match=says):
        tried(cluster, sample({"spec": spec}))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_admitted(cluster: Cluster, example: Path) -> None:
    cluster.kubectl("apply", "--server-side", "--dry-run=server", "-n", "default", "-f", example)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_children_of_examples_are_admitted(cluster: Cluster, namespace: str, example: Path) -> None:
    """What the operator would make of them, but for kinds that are not installed here."""
    items = []
    for body in yaml.safe_load_all(example.read_text()):
        if body["kind"] == "InferenceService":
            body["metadata"] |= {"namespace": namespace, "uid": "00000000-0000-0000-0000-000000000001"}
            items += children(InferenceService.read(body), ACCELERATORS, SITE)
    made = [item for item in items if item["kind"] not in ("LeaderWorkerSet", "PodMonitor")]
    assert {"Deployment", "Service", "ConfigMap", "NetworkPolicy"} <= {item["kind"] for item in made}
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": made})
    cluster.kubectl("create", "--dry-run=server", "--validate=strict", "-n", namespace, "-f", "-", input=text)


def test_explain_and_short_names_work(cluster: Cluster) -> None:
    assert "TTFT" in cluster.kubectl("explain", "isv.spec.objectives.timeToFirstToken")
    assert "accelerators" in cluster.kubectl("api-resources", "--categories=steelyard", "-o", "name")


def test_the_catalogue_is_there_with_its_columns(cluster: Cluster) -> None:
    table = cluster.kubectl("get", "accelerators")
    assert table.split("\n")[0].split() == ["NAME", "VENDOR", "MEMORY", "PER", "NODE", "PRICE", "AVAILABILITY", "AGE"]
    assert "h200" in table

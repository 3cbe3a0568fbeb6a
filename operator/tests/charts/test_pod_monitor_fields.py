"""PodMonitors hold only fields that the kind has (prometheus-operator's own definition), of the right form, and lead to the
page of every engine.

Its API server drops what it does not know without a word, so a misspelt field would leave pods unscraped or unlabelled.
`e2e/scenarios/test_pod_monitors.py` shows them to a real API server and a real Prometheus.
"""

from __future__ import annotations

import gzip
import re
from functools import cache
from typing import Any

import pytest
import yaml
from engine_bodies import BASES
from jsonschema import Draft202012Validator
from operator_bodies import KNOWN, SITE, service, simulated
from rendering import rendered
from steelyard.build import render
from steelyard.build.engines import tensorrt_llm

from e2e.cache import REPOSITORY

DEFINITION = REPOSITORY / "e2e" / "data" / "podmonitors-0.85.0.yaml.gz"
ANNOTATION = "__meta_kubernetes_pod_annotation_"
PAGES = dict.fromkeys(("simulated", "vllm", "sglang"), "/metrics") | {"tensorrt-llm": tensorrt_llm.METRICS_PAGE}


@cache
def schema() -> dict[str, Any]:
    """The kind's schema, closed: the API server would drop other fields."""
    [version] = yaml.safe_load(gzip.decompress(DEFINITION.read_bytes()))["spec"]["versions"]
    found: dict[str, Any] = closed(version["schema"]["openAPIV3Schema"]["properties"]["spec"])
    return found


def closed(part: Any) -> Any:
    if isinstance(part, list):
        return [closed(one) for one in part]
    if not isinstance(part, dict):
        return part
    inner = {key: closed(value) for key, value in part.items()}
    return {"additionalProperties": False, **inner} if isinstance(part.get("properties"), dict) else inner


def monitors(**given: Any) -> list[dict[str, Any]]:
    objects = rendered("steelyard", monitoring={"podMonitors": True}, **given)
    return [one for one in objects if one["kind"] == "PodMonitor"]


@pytest.mark.parametrize("given", [{}, {"watchNamespaces": ["team-a"]}], ids=["all", "namespaced"])
def test_every_field_is_one_that_the_kind_has(given: dict[str, Any]) -> None:
    found = monitors(**given)
    assert len(found) == 3
    for monitor in found:
        assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
        assert [error.message for error in Draft202012Validator(schema()).iter_errors(monitor["spec"])] == []
        for endpoint in monitor["spec"]["podMetricsEndpoints"]:
            interval, timeout = (float(re.sub("s$", "", endpoint[name])) for name in ("interval", "scrapeTimeout"))
            assert timeout <= interval, "Prometheus refuses the whole configuration otherwise"


def test_a_field_that_the_kind_lacks_would_be_seen() -> None:
    spec = monitors()[0]["spec"]
    spec = {**spec, "podMetricsEndpoints": [{**spec["podMetricsEndpoints"][0], "metricsPath": "/metrics"}]}
    assert "metricsPath" in str(next(Draft202012Validator(schema()).iter_errors(spec)).message)


def test_the_labels_that_queries_group_by_are_set() -> None:
    """`namespace` and `pod` are set for every PodMonitor by the operator of Prometheus; `service` is ours to set."""
    for monitor in monitors():
        [endpoint] = monitor["spec"]["podMetricsEndpoints"]
        if endpoint.get("honorLabels"):
            continue  # the operator, which says itself what a figure is about
        targets = {rule["targetLabel"]: rule["sourceLabels"] for rule in endpoint["relabelings"]}
        assert targets["service"] == ["__meta_kubernetes_pod_label_serving_steelyard_dev_service"]
        assert not {"role", "pool", "revision"} & targets.keys(), "each change of them would begin new series"


@pytest.mark.parametrize(("engine", "page"), PAGES.items())
def test_every_engine_is_asked_where_it_has_its_text(engine: str, page: str) -> None:
    of = service(simulated() if engine == "simulated" else BASES[engine])
    [monitor] = [one for one in monitors() if one["metadata"]["name"].endswith("-engine")]
    pools = [child for child in render.children(of, KNOWN, SITE) if child["metadata"]["name"].startswith(of.name)]
    templates = [child["spec"]["template"] for child in pools if child["kind"] == "Deployment"]
    engines = [one for one in templates if one["spec"]["containers"][0]["name"] == "engine"]
    assert engines
    for template in engines:
        assert path_of(monitor, template["metadata"].get("annotations", {})) == page


def path_of(monitor: dict[str, Any], annotations: dict[str, str]) -> str:
    """The page that is scraped of a pod with these annotations."""
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    known = {ANNOTATION + re.sub(r"[^a-zA-Z0-9_]", "_", name): value for name, value in annotations.items()}
    path = str(endpoint["path"])
    for rule in endpoint["relabelings"]:
        if rule["targetLabel"] == "__metrics_path__":
            match = re.fullmatch(rule["regex"], ";".join(known.get(name, "") for name in rule["sourceLabels"]))
            path = match[1] if match else path
    return path

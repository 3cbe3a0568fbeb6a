"""Alerts and dashboards name only metrics and labels that somebody writes, and every alert has its page.

That Prometheus evaluates them, and when each alert fires, is shown by `e2e/scenarios/test_alerts.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import promql_parser as promql
import pytest
import yaml
from jsonschema import Draft202012Validator
from prometheus_client.parser import text_string_to_metric_families
from rendering import CHARTS, one, rendered
from steelyard.api import crd
from steelyard.gateway.metrics import Metrics as GatewayMetrics
from steelyard.observe import metrics_engines
from steelyard.run import metrics as operator_metrics
from steelyard_engine.metrics import Gauges, Metrics

from charts.boards import BOARDS
from e2e.cache import REPOSITORY

RULES = yaml.safe_load((CHARTS / "steelyard" / "rules" / "steelyard.yaml").read_text())
EVERY = [rule for group in RULES["groups"] for rule in group["rules"]]
ALERTS = {rule["alert"]: rule for rule in EVERY if "alert" in rule}
RECORDED = {rule["record"] for rule in EVERY if "record" in rule}
RUNBOOKS = REPOSITORY / "docs" / "runbooks"
TARGET = {"namespace", "service", "pod", "component", "job", "instance"}
SGLANG = {series.name for things in vars(metrics_engines).values() if isinstance(things, tuple)
          for series in things if isinstance(series, metrics_engines.Series)}  # fmt: skip


@cache
def written() -> dict[str, set[str]]:
    """Every metric that our programs write, by the name of its samples, and the labels it may have."""
    engine = Metrics("m", 1, 1, Gauges(*(lambda: 0.0,) * 4))
    page = engine.expose("text/plain")[0].decode()
    found: dict[str, set[str]] = {name: set() for name in SGLANG} | {"up": set()}
    families = [
        *text_string_to_metric_families(page),
        *GatewayMetrics().collect(),
        *operator_metrics.REGISTRY.collect(),
    ]
    for family in families:
        parts = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("_total",)}.get(family.type, ("",))
        labels = {label for sample in family.samples for label in sample.labels} | {*getattr(family, "_labelnames", ())}
        for part in parts:
            found.setdefault(family.name + part, set()).update(labels)
    for gauge in vars(operator_metrics).values():
        name = getattr(gauge, "_name", None)
        for suffix in ("", "_total", "_bucket", "_sum", "_count") if name else ():
            if name + suffix in found:
                found[name + suffix].update(gauge._labelnames)
    for name, _, label, _ in gateway_gauges():
        found["steelyard_gateway_" + name] = {label}
    return found


def gateway_gauges() -> list[tuple[str, str, str, Any]]:
    """Gauges that the router lends to the gateway's page."""
    source = (REPOSITORY / "operator/src/steelyard/gateway/router.py").read_text()
    return [(name, "", label, None) for name, label in re.findall(r'\("(\w+)", "[^"]+", "(role|engine)"', source)]


def selectors(text: str) -> Iterator[tuple[str, set[str]]]:
    """The metrics of an expression, each with the labels that it is picked by."""
    for part in walk(promql.parse(text)):
        if isinstance(part, promql.VectorSelector):
            yield part.name, {matcher.name for matcher in part.matchers.matchers}


def walk(part: Any) -> Iterator[Any]:
    yield part
    for name in ("lhs", "rhs", "expr", "vector_selector", "args"):
        inner = getattr(part, name, None)
        for child in inner if isinstance(inner, list) else [inner]:
            if child is not None:
                yield from walk(child)


def of_boards() -> Iterator[tuple[str, str]]:
    for name, board in BOARDS.items():
        for panels in board.rows.values():
            for panel in panels:
                for query in panel.queries.values():
                    yield f"{name}: {panel.title}", filled(query)
        for words, query in board.moments.items():
            yield f"{name}: {words}", filled(query)


def filled(query: str) -> str:
    for variable, value in {"$__rate_interval": "30s", "$namespace": "a", "$service": "chat"}.items():
        query = query.replace(variable, value)
    return query


OF_RULES = [(rule.get("alert") or rule["record"], rule["expr"]) for rule in EVERY]


@pytest.mark.parametrize(("where", "query"), [*OF_RULES, *of_boards()])
def test_metrics_and_labels_exist(where: str, query: str) -> None:
    found = dict(selectors(query))
    assert found, where
    for name, labels in found.items():
        assert name in written() or name in RECORDED, f"{where}: nobody writes {name}"
        assert labels <= TARGET | written().get(name, set()), f"{where}: {name} has no labels {labels}"


def test_a_metric_that_nobody_writes_would_be_seen() -> None:
    assert dict(selectors("sum(rate(steelyard_gateway_request_total{outcom='x'}[5m]))")) == {
        "steelyard_gateway_request_total": {"outcom"}
    }
    assert "steelyard_gateway_request_total" not in written()
    assert "outcom" not in written()["steelyard_gateway_requests_total"] | TARGET


@pytest.mark.parametrize("name", ALERTS)
def test_every_alert_says_what_is_so_and_where_to_read_on(name: str) -> None:
    alert = ALERTS[name]
    assert alert["labels"]["severity"] in ("critical", "warning", "info")
    assert {"summary", "description", "runbook"} == alert["annotations"].keys()
    page = REPOSITORY / alert["annotations"]["runbook"]
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    assert headings == [name, "Meaning", "Impact", "Diagnosis", "Mitigation"]


def test_every_page_belongs_to_an_alert_and_the_table_has_them_all() -> None:
    assert {page.stem for page in RUNBOOKS.glob("*.md")} == {*ALERTS, "README"}
    rows = re.findall(r"^\| \[(\w+)\]\(\w+\.md\) \| (\w+) \| (.+) \|$", (RUNBOOKS / "README.md").read_text(), re.M)
    assert rows == [(n, a["labels"]["severity"], a.get("for", "two windows")) for n, a in ALERTS.items()]


@pytest.mark.parametrize("page", sorted(RUNBOOKS.glob("*.md")), ids=lambda page: page.stem)
def test_pages_name_fields_and_metrics_that_exist(page: Any) -> None:
    text = page.read_text()
    for path in re.findall(r"`(spec(?:\.\w+)+)", text):
        assert has_field(path.split(".")), f"{path} is no field"
    for name in re.findall(r"`((?:steelyard|vllm)[_:]\w+)[`{]", text):
        known = {re.sub(r"_(bucket|sum|count)$", "", one) for one in written()} | set(written())
        assert name in known | {"steelyard_system"}, f"nobody writes {name}"


def has_field(path: list[str]) -> bool:
    [kind] = [kind for kind in crd.KINDS if kind.name == "InferenceService"]
    [version] = crd.definition(kind)["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    for name in path:
        schema = schema.get("items", schema)
        if name not in schema.get("properties", {}):
            return False
        schema = schema["properties"][name]
    return True


@pytest.mark.parametrize(("base", "then"), [("", "runbook"), ("https://wiki.example/steelyard", "runbook_url")])
def test_the_chart_brings_the_rules_as_they_are(base: str, then: str) -> None:
    made = one(rendered("steelyard", monitoring={"rules": True, "runbooks": base}), "PrometheusRule")
    for group, ours in zip(made["spec"]["groups"], RULES["groups"], strict=True):
        for rule, mine in zip(group["rules"], ours["rules"], strict=True):
            place = rule.get("annotations", {}).pop(then, None)
            page = mine.get("annotations", {}).get("runbook")
            assert place == (page and page.replace("docs/runbooks", base or "docs/runbooks"))
            assert {**rule, "annotations": {}} == {**mine, "annotations": {}}


def test_the_chart_brings_the_dashboards_where_grafanas_sidecar_looks() -> None:
    made = [o for o in rendered("steelyard", monitoring={"dashboards": True}) if o["kind"] == "ConfigMap"]
    boards = {name: text for o in made if o["metadata"]["labels"].get("grafana_dashboard") == "1"
              for name, text in o["data"].items()}  # fmt: skip
    assert boards.keys() == {f"{name}.json" for name in BOARDS}
    for name, board in BOARDS.items():
        assert json.loads(boards[f"{name}.json"]) == json.loads(board.json())


def test_nothing_of_it_is_installed_unasked() -> None:
    kinds = {o["kind"] for o in rendered("steelyard")}
    assert not kinds & {"PrometheusRule", "PodMonitor"}
    assert not [o for o in rendered("steelyard") if "grafana_dashboard" in o["metadata"].get("labels", {})]


@pytest.mark.parametrize("value", ["wiki.example/x", "https://wiki.example/x/"])
def test_an_address_of_runbooks_that_would_make_broken_links_is_refused(value: str) -> None:
    schema = json.loads((CHARTS / "steelyard" / "values.schema.json").read_text())
    assert list(Draft202012Validator(schema).iter_errors({"monitoring": {"runbooks": value}}))

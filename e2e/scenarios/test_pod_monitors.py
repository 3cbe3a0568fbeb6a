"""Our PodMonitors before those who read them: an API server with the kind's own definition, and Prometheus' relabelling."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e import tools
from e2e.cache import REPOSITORY
from e2e.cluster import ClusterError
from e2e.monitoring.loopback import READY_SECONDS, serving
from e2e.platform import CHARTS, Platform

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]  # the first time the program is built

DEFINITION = REPOSITORY / "e2e" / "data" / "podmonitors-0.85.0.yaml.gz"
OURS = Path(__file__).parents[1] / "monitoring" / "prometheus.yaml"
POD = "__meta_kubernetes_pod_"


def rendered() -> list[dict[str, Any]]:
    command = [
        str(tools.helm()),
        "template",
        "steelyard",
        str(CHARTS / "steelyard"),
        "--set",
        "monitoring.podMonitors=true",
    ]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [one for one in yaml.safe_load_all(text) if one and one["kind"] == "PodMonitor"]


@pytest.fixture
def installed(platform: Platform) -> Iterator[None]:
    platform.kubectl("apply", "--server-side", "-f", "-", text=gzip.decompress(DEFINITION.read_bytes()).decode())
    name = "customresourcedefinition/podmonitors.monitoring.coreos.com"
    platform.kubectl("wait", "--for=condition=Established", name, "--timeout=60s")
    yield
    platform.kubectl("delete", name)


def test_the_api_server_keeps_every_field(platform: Platform, installed: None, namespace: str) -> None:
    monitors = rendered()
    assert {one["metadata"]["name"].rpartition("-")[2] for one in monitors} == {"engine", "gateway", "operator"}
    for monitor in monitors:
        monitor["metadata"]["namespace"] = namespace
        taken = platform.kubectl(
            "apply", "--server-side", "--validate=strict", "-o", "json", "-f", "-", text=json.dumps(monitor)
        )
        assert kept(monitor["spec"], json.loads(taken)["spec"]), taken
        misspelt = json.dumps(monitor).replace('"scrapeTimeout"', '"scrapeTimeOut"')
        with pytest.raises(ClusterError, match="scrapeTimeOut"):
            platform.kubectl("apply", "--server-side", "--validate=strict", "-f", "-", text=misspelt)


def kept(ours: Any, theirs: Any) -> bool:
    """Whether all of an object is in another, which may have defaults beside it."""
    if isinstance(ours, dict):
        return all(key in theirs and kept(value, theirs[key]) for key, value in ours.items())
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(kept, ours, theirs))
    return bool(ours == theirs)


def snake(rule: dict[str, Any]) -> dict[str, Any]:
    """A relabelling as Prometheus itself spells it."""
    return {re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", key): value for key, value in rule.items()}


def by_monitors() -> list[dict[str, Any]]:
    """The relabellings that prometheus-operator makes of the engines' monitor, after those it adds itself."""
    [monitor] = [one for one in rendered() if one["metadata"]["name"].endswith("-engine")]
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    own = [
        {"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"},
        {"source_labels": [f"{POD}name"], "target_label": "pod"},
    ]
    return [*own, *map(snake, endpoint["relabelings"])]


def by_our_configuration() -> list[dict[str, Any]]:
    """Those of e2e/monitoring."""
    [config] = [one for one in yaml.safe_load_all(OURS.read_text()) if one["kind"] == "ConfigMap"]
    jobs = yaml.safe_load(config["data"]["prometheus.yml"])["scrape_configs"]
    rules: list[dict[str, Any]] = next(job for job in jobs if job["job_name"] == "steelyard")["relabel_configs"]
    return rules


@pytest.mark.parametrize("rules", [by_monitors, by_our_configuration], ids=["monitors", "e2e/monitoring"])
def test_prometheus_asks_each_engine_at_its_page_and_gives_it_our_labels(rules: Any, tmp_path: Path) -> None:
    """Discovery is played by fixed targets with the labels that it would give."""
    pods = {"plain": {}, "elsewhere": {f"{POD}annotation_serving_steelyard_dev_metrics_path": "/prometheus/metrics"}}
    component = f"{POD}label_app_kubernetes_io_component"
    targets = [
        {
            "targets": ["127.0.0.1:1"],
            "labels": {
                "__meta_kubernetes_namespace": "team-a",
                f"{POD}name": name,
                f"{POD}phase": "Running",
                f"{POD}container_port_number": "8000",
                f"{POD}label_serving_steelyard_dev_service": "chat",
                component: "engine",
                **annotations,
            },
        }
        for name, annotations in pods.items()
    ]
    config = {"scrape_configs": [{"job_name": "engines", "static_configs": targets, "relabel_configs": rules()}]}
    with serving(tmp_path, config) as port:
        found, deadline = active(port), time.monotonic() + READY_SECONDS
        while len(found) < len(pods):
            assert time.monotonic() < deadline
            time.sleep(0.2)
            found = active(port)
    assert {one["labels"]["pod"]: one["scrapeUrl"] for one in found} == {
        "plain": "http://127.0.0.1:1/metrics",
        "elsewhere": "http://127.0.0.1:1/prometheus/metrics",
    }
    for one in found:
        labels = {name: value for name, value in one["labels"].items() if name not in ("instance", "job", "pod")}
        assert labels == {"namespace": "team-a", "service": "chat", "component": "engine"}


def active(port: int) -> list[dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/targets", timeout=5) as answer:
            return list(json.load(answer)["data"]["activeTargets"])
    except (OSError, urllib.error.HTTPError):
        return []

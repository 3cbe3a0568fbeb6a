"""Prometheus in the namespace `monitoring`, and the operator's settings that name it."""

import json
from pathlib import Path
from string import Template
from textwrap import indent
from typing import Any
from urllib.parse import quote

from rich.console import Console

from e2e.monitoring import image
from e2e.platform import CHARTS, SYSTEM_NAMESPACE, Platform

NAMESPACE = "monitoring"
URL = f"http://prometheus.{NAMESPACE}.svc:9090"
_MANIFESTS = Path(__file__).with_name("prometheus.yaml")
_READY_SECONDS = 180


def install(platform: Platform, console: Console) -> None:
    """Put Prometheus on the cluster and wait until it is ready; one that runs already is left as it is."""
    platform.cluster.load([image.archive(console)])
    rules = indent((CHARTS / "steelyard" / "rules" / "steelyard.yaml").read_text(), " " * 4).strip()
    text = Template(_MANIFESTS.read_text()).substitute(
        image=image.reference(), namespace=NAMESPACE, user=image.USER, rules=rules
    )
    platform.apply(text, NAMESPACE)
    _wait(platform)


def connect_operator(platform: Platform) -> None:
    """Let the operator read this Prometheus, and the services created from now on be scraped by it."""
    _upgrade(platform, {"prometheusNamespace": NAMESPACE, "prometheus.url": URL})


def disconnect_operator(platform: Platform) -> None:
    """Take the operator back to having no Prometheus."""
    _upgrade(platform, {"prometheusNamespace": None, "prometheus.url": ""})


def stop(platform: Platform) -> None:
    """Scale Prometheus away, data and all, and wait until nothing answers."""
    platform.kubectl("scale", "deployment/prometheus", "-n", NAMESPACE, "--replicas=0")
    platform.wait_for("Prometheus to be gone", lambda: not platform.items("pods", NAMESPACE, "app=prometheus"))


def restart(platform: Platform) -> None:
    """Start it again, with nothing in its store."""
    platform.kubectl("scale", "deployment/prometheus", "-n", NAMESPACE, "--replicas=1")
    _wait(platform)


def value(platform: Platform, query: str) -> float | None:
    """What a query answers with one value; None where it has none."""
    found = ask(platform, f"query?query={quote(query)}")["result"]
    return float(found[0]["value"][1]) if found else None


def ask(platform: Platform, path: str) -> Any:
    """The data of an answer of Prometheus' API."""
    raw = f"/api/v1/namespaces/{NAMESPACE}/services/prometheus:9090/proxy/api/v1/{path}"
    return json.loads(platform.kubectl("get", "--raw", raw))["data"]


def _wait(platform: Platform) -> None:
    platform.kubectl("rollout", "status", "deployment/prometheus", "-n", NAMESPACE, f"--timeout={_READY_SECONDS}s")


def _upgrade(platform: Platform, values: dict[str, str | None]) -> None:
    flags = [part for key, value in values.items() for part in ("--set-json", f"{key}={json.dumps(value)}")]
    platform.helm(
        "upgrade", "steelyard", str(CHARTS / "steelyard"), "-n", SYSTEM_NAMESPACE, "--reuse-values", *flags,
        "--wait", "--timeout", "3m",
    )  # fmt: skip
    platform.wait_for("the operator with the earlier settings to be gone", lambda: replaced(platform))


def replaced(platform: Platform) -> bool:
    """Helm waits for the new pods only; an old one may lead until its end, and render children by the old settings."""
    deployment = platform.get("deployment", "steelyard-operator", SYSTEM_NAMESPACE)
    pods = platform.items("pods", SYSTEM_NAMESPACE, "app.kubernetes.io/name=steelyard")
    return len(pods) == int(deployment["spec"]["replicas"])

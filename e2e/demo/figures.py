"""Reads what engines say of themselves: sums of counters over pods, before and after a request."""

from __future__ import annotations

import urllib.request
from collections import Counter
from collections.abc import Iterable

from prometheus_client.parser import text_string_to_metric_families

from e2e.platform import Platform

PROMPT_TOKENS = "vllm:prompt_tokens_by_source_total"
TRANSFERRED = "steelyard_engine_kv_transfer_bytes_total"

Counts = Counter[tuple[str, str]]


def parse(text: str) -> Counts:
    """Counters of interest as (metric, value of its `source` or `direction` label) → sum over the other labels."""
    counts: Counts = Counter()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in (PROMPT_TOKENS, TRANSFERRED):
                label = sample.labels.get("source") or sample.labels.get("direction") or ""
                counts[sample.name, label] += int(sample.value)
    return counts


def of_pods(platform: Platform, pods: Iterable[str], namespace: str) -> Counts:
    """The counters of some engine pods, read from each pod itself through the API server."""
    total: Counts = Counter()
    for pod in pods:
        with (
            platform.forward(f"pod/{pod}", 8000, namespace) as base,
            urllib.request.urlopen(f"{base}/metrics", timeout=10) as reply,
        ):
            total.update(parse(reply.read().decode()))
    return total


def ready_pods(platform: Platform, service: str, role: str, namespace: str) -> list[str]:
    """Names of the service's engine pods that do `role` now."""
    selector = f"serving.steelyard.dev/service={service},serving.steelyard.dev/role={role}"
    return [pod["metadata"]["name"] for pod in platform.items("pod", namespace, selector)]

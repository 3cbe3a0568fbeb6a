"""Reads what engines say of themselves: sums of counters over pods, before and after a request."""

from __future__ import annotations

import urllib.request
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from e2e.platform import Platform, condition

PROMPT_TOKENS = "vllm:prompt_tokens_by_source_total"
TRANSFERRED = "steelyard_engine_kv_transfer_bytes_total"

Counts = Counter[tuple[str, str]]


def prompt_tokens(counts: Counts) -> int:
    """Prompt tokens from every source: computed, found in the cache, transferred."""
    return sum(count for (metric, _), count in counts.items() if metric == PROMPT_TOKENS)


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
    """Names of the service's engine pods that do `role` now; those on their way out do not count."""
    selector = f"serving.steelyard.dev/service={service},serving.steelyard.dev/role={role}"
    pods = platform.items("pod", namespace, selector)
    return [pod["metadata"]["name"] for pod in pods if condition(pod, "Ready") == "True" and not _leaves(pod)]


def _leaves(pod: Mapping[str, Any]) -> bool:
    return "deletionTimestamp" in pod["metadata"]

"""A fleet's series, only those that the queries use, as OpenMetrics text for `promtool tsdb create-blocks-from openmetrics`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

SCRAPE_SECONDS = 5
SAMPLES = 7  # half a minute: what the spans of a healthy service need
GATEWAYS = 2


@dataclass(frozen=True)
class Fleet:
    """Services with equally many engine pods, of which a quarter prefill, and two gateways each."""

    services: int
    pods: int  # engines of a service

    def service(self, number: int) -> tuple[str, str]:
        """Namespace and name; ten services share a namespace."""
        return f"team-{number // 10}", f"chat-{number}"

    def engines(self, number: int) -> Iterator[tuple[str, str]]:
        """(pod, role) of a service."""
        for place in range(self.pods):
            role = "prefill" if place % 4 == 0 else "decode"
            yield f"chat-{number}-{role}-6f7d8c9b5d-{place:05}", role

    def gateways(self, number: int) -> Iterator[str]:
        """The names of a service's gateways."""
        for place in range(GATEWAYS):
            yield f"chat-{number}-7c9d5f6b8-{place:05}"


def write(fleet: Fleet, end: int, out: IO[str]) -> int:
    """Write every series with its samples, the last one at `end` (unix seconds); gives how many series there are."""
    count = 0
    for name, kind, values in _metrics():
        family = name.removesuffix("_total") if kind == "counter" else name
        out.write(
            f"# TYPE {family.removesuffix('_sum').removesuffix('_count')} {'unknown' if kind == 'part' else kind}\n"
        )
        for labels in _labels(fleet, name):
            count += 1
            for sample in range(SAMPLES):
                at = end - SCRAPE_SECONDS * (SAMPLES - 1 - sample)
                out.write(f"{name}{{{labels}}} {values[0] + values[1] * sample} {at}\n")
    out.write("# EOF\n")
    return count


def _metrics() -> Iterator[tuple[str, str, tuple[float, float]]]:
    """(name, kind, (first value, growth with each sample))."""
    yield "up", "gauge", (1, 0)
    yield "vllm:num_requests_running", "gauge", (12, 1)
    yield "vllm:num_requests_waiting", "gauge", (0, 0)
    yield "vllm:kv_cache_usage_perc", "gauge", (0.4, 0.01)
    yield "vllm:generation_tokens_total", "counter", (1e6, 2000)
    yield "vllm:inter_token_latency_seconds_sum", "part", (3e4, 60)
    yield "vllm:inter_token_latency_seconds_count", "part", (1e6, 2000)
    yield "vllm:request_prefill_time_seconds_sum", "part", (2e3, 3)
    yield "vllm:request_prefill_time_seconds_count", "part", (1e4, 15)
    yield "vllm:prompt_tokens_by_source_total", "counter", (1e7, 15_000)
    yield "steelyard_gateway_arrived_total", "counter", (1e4, 30)
    yield "steelyard_gateway_uncached_tokens_total", "counter", (1e7, 30_000)
    yield "steelyard_gateway_prompt_tokens_total", "counter", (1e7, 30_000)
    yield "steelyard_gateway_generated_tokens_total", "counter", (1e6, 6000)
    yield "steelyard_gateway_requests_total", "counter", (1e4, 30)
    yield "steelyard_gateway_queued_requests", "gauge", (2, 0)
    yield "steelyard_gateway_queued_tokens", "gauge", (2000, 0)
    yield "steelyard_gateway_engine_outstanding_tokens", "gauge", (500, 0)


def _labels(fleet: Fleet, name: str) -> Iterator[str]:
    for number in range(fleet.services):
        namespace, service = fleet.service(number)
        base = f'namespace="{namespace}",service="{service}",job="steelyard"'
        if name == "up" or name.startswith("vllm:"):
            source = ',source="local_compute"' if "by_source" in name else ""
            model = "" if name == "up" else f',model_name="m"{source}'
            for pod, _ in fleet.engines(number):
                yield f'{base},pod="{pod}"{model}'
        if name == "up" or name.startswith("steelyard_gateway_"):
            more = [""]
            if "engine_outstanding" in name:
                more = [f',engine="{pod}"' for pod, _ in fleet.engines(number)]
            elif "queued" in name:
                more = [',role="prefill"', ',role="decode"']
            elif "requests_total" in name:
                more = [
                    f',outcome="completed",ttft_met="{met}",tpot_met="true",length_class="0-255"'
                    for met in ("true", "false")
                ]
            for pod in fleet.gateways(number):
                yield from (f'{base},pod="{pod}"{extra}' for extra in more)

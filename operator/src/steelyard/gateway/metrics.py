"""The gateway's metrics: plain numbers on the hot path, turned into Prometheus' text only when scraped.

Histograms have a fixed grid, so that those of several gateways and releases add up. Labels are bounded: outcomes, roles,
legs, five length classes, and the engines that exist now.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry

from steelyard.decide.queue.judge import Met, Outcome
from steelyard.gateway.connections import Connections

PREFIX = "steelyard_gateway_"

LATENCY_GRID = (
    0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0,
    1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0,
)  # fmt: skip
TOKEN_GRID = (
    0.001, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01, 0.0125, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.045, 0.05,
    0.06, 0.07, 0.08, 0.1, 0.125, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75, 1.0, 2.0, 5.0,
)  # fmt: skip


class Histogram:
    """Counts on a fixed grid of upper bounds (inclusive), in seconds."""

    __slots__ = ("_counts", "_grid", "_sum")

    def __init__(self, grid: tuple[float, ...]) -> None:
        self._grid = grid
        self._counts = [0] * (len(grid) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._grid, seconds)] += 1
        self._sum += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Return (upper bound, values up to it), the last one +Inf."""
        return [(str(bound), n) for bound, n in zip((*self._grid, "+Inf"), accumulate(self._counts), strict=True)]

    @property
    def sum(self) -> float:
        """Sum of all values."""
        return self._sum


Gauges = Callable[[], list[tuple[str, str, str, list[tuple[str, float]]]]]  # (name, help, label, [(value, number)])


class Metrics(Collector):
    """Everything this gateway counts."""

    def __init__(self) -> None:
        self._judged: Counter[tuple[Outcome, Met, Met, str]] = Counter()
        self.retries: Counter[str] = Counter()  # by leg
        self.aside: Counter[str] = Counter()  # engines set aside, by role
        self.arrived = 0
        self.uncached_tokens = 0.0
        self.hopeless_tokens = 0.0
        self.prompt_tokens = 0
        self.answer_tokens = 0
        self.handoffs_missing = 0
        self.recomputed = 0
        self.kv_given_up = 0
        self.settings_refused = 0
        self.ttft, self.e2e = Histogram(LATENCY_GRID), Histogram(LATENCY_GRID)
        self.tpot = Histogram(TOKEN_GRID)
        self.handoff = Histogram(LATENCY_GRID)
        self.prefill_queue, self.decode_queue = Histogram(LATENCY_GRID), Histogram(LATENCY_GRID)
        self.gauges: Gauges = list
        self.ports: Mapping[str, Connections[Any]] = {}  # open connections by the port's name

    def judged(self, outcome: Outcome, ttft: Met, tpot: Met, length: str) -> None:
        """Count a request that ended."""
        self._judged[outcome, ttft, tpot, length] += 1

    def registry(self) -> CollectorRegistry:
        """Return a registry that holds only this gateway's metrics."""
        registry = CollectorRegistry()
        registry.register(self)
        return registry

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily]:
        """Yield all metric families as they stand now."""
        judged = CounterMetricFamily(
            PREFIX + "requests",
            "Requests that ended, by outcome and whether they met their objectives.",
            labels=("outcome", "ttft_met", "tpot_met", "length_class"),
        )
        for (outcome, ttft, tpot, length), count in sorted(self._judged.items()):
            judged.add_metric((outcome, ttft, tpot, length), count)
        yield judged
        for name, text, value in (
            ("arrived", "Requests for a completion that arrived.", self.arrived),
            ("uncached_tokens", "Prompt tokens arrived that no cache holds, as engines count them in the end.",
             self.uncached_tokens),
            ("hopeless_tokens", "Of these, in prompts too long for the TTFT objective even alone.", self.hopeless_tokens),
            ("prompt_tokens", "Prompt tokens of answered requests, as engines count them.", self.prompt_tokens),
            ("generated_tokens", "Tokens of answers.", self.answer_tokens),
            ("handoffs_missing", "Prefill answers without hand-off data; decode served the request whole.",
             self.handoffs_missing),
            ("recomputed", "Requests that decode served whole after a failed hand-off.", self.recomputed),
            ("kv_given_up", "Prefilled KV that nobody would fetch any more, given up where it was held.", self.kv_given_up),
            ("settings_refused", "New settings that were refused; the old ones stayed in use.", self.settings_refused),
        ):  # fmt: skip
            yield CounterMetricFamily(PREFIX + name, text, value=value)
        for name, text, label, counter in (
            ("retries", "Calls repeated after a failure.", "leg", self.retries),
            ("engines_set_aside", "Engines taken out of use until healthy.", "role", self.aside),
        ):
            family = CounterMetricFamily(PREFIX + name, text, labels=(label,))
            for key, count in sorted(counter.items()):
                family.add_metric((key,), count)
            yield family
        for name, text, histogram in (
            ("ttft_seconds", "Time to first token as clients of this gateway see it.", self.ttft),
            ("tpot_seconds", "Mean time per output token after the first, of each request.", self.tpot),
            ("e2e_seconds", "Time from a request's arrival to its answer's last byte.", self.e2e),
            ("handoff_seconds", "Time from the end of prefill to the first token from decode.", self.handoff),
        ):
            yield HistogramMetricFamily(PREFIX + name, text, buckets=histogram.buckets(), sum_value=histogram.sum)
        waited = HistogramMetricFamily(PREFIX + "queue_seconds", "Time in the gateway's queue.", labels=("role",))
        for role, histogram in (("prefill", self.prefill_queue), ("decode", self.decode_queue)):
            waited.add_metric((role,), buckets=histogram.buckets(), sum_value=histogram.sum)
        yield waited
        yield from self._connections()
        for name, text, label, values in self.gauges():
            gauge = GaugeMetricFamily(PREFIX + name, text, labels=(label,))
            for key, value in values:
                gauge.add_metric((key,), value)
            yield gauge

    def _connections(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        opened = GaugeMetricFamily(PREFIX + "connections", "Open connections by port.", labels=("port",))
        evicted = CounterMetricFamily(
            PREFIX + "connections_evicted",
            "Connections at rest that were closed to make room for others.",
            labels=("port",),
        )
        refused = CounterMetricFamily(
            PREFIX + "connections_refused",
            "Connections refused because all there may be were at work.",
            labels=("port",),
        )
        for port, connections in self.ports.items():
            opened.add_metric((port,), len(connections.open))
            evicted.add_metric((port,), connections.evicted)
            refused.add_metric((port,), connections.refused)
        yield from (opened, evicted, refused)

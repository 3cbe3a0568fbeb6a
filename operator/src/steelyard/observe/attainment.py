"""How well the objectives were met over their window: counted from judged requests, or, where a service has no gateway of
ours, read from its engines' histograms.

Asked once a minute, for all services together, once for each length of window in use; there are six lengths, and a
service's window is counted over the shortest that holds it. Without a gateway TTFT is the sum of the prefill pods' whole
time and the decode pods' time to their first token, taken as independent; the share that meets both objectives is then the
product of the two shares, which lies between their sum less one and the smaller of them.
"""

from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TypeVar

from steelyard.api.labels import AGGREGATED, DECODE, PREFILL
from steelyard.decide.attained import Attained, Latency
from steelyard.decide.scale.signals import Objectives
from steelyard.observe import metrics_engines as engines
from steelyard.observe import metrics_gateway as gateway
from steelyard.observe.answers import Unanswered
from steelyard.observe.histograms import Histogram, collect, convolved, merged, percentile, share_within, total
from steelyard.observe.metrics_engines import POD, SERVICE
from steelyard.observe.prometheus import Ask, Query
from steelyard.observe.signals import Pods

WINDOWS = (60, 300, 900, 3600, 21_600, 86_400)
PERCENTILES = (0.5, 0.95, 0.99)
Key = tuple[str, ...]
Counts = Mapping[Key, float]
Found = TypeVar("Found")


@dataclass(frozen=True)
class Figures:
    """The answers for one length of window, by service; the last three by its pods, where no gateway of ours serves it."""

    judged: Mapping[Key, Counts]
    ttft: Mapping[Key, Histogram]
    tpot: Mapping[Key, Histogram]
    whole: Mapping[Key, Mapping[Key, Histogram]]
    first: Mapping[Key, Mapping[Key, Histogram]]
    step: Mapping[Key, Mapping[Key, Histogram]]


def queries(window: int) -> dict[str, Query]:
    """The queries of one length of window, by the field of `Figures` that they fill."""
    service, pod = (*SERVICE, "le"), (*POD, "le")
    return {
        "judged": Query(gateway.judged(window, "ttft_met", "tpot_met"), (*SERVICE, "ttft_met", "tpot_met")),
        "ttft": Query(gateway.buckets("ttft_seconds", window), service),
        "tpot": Query(gateway.buckets("tpot_seconds", window), service),
        "whole": Query(gateway.without_gateway(engines.buckets(engines.WHOLE, window)), pod),
        "first": Query(gateway.without_gateway(engines.buckets(engines.FIRST_TOKEN, window)), pod),
        "step": Query(gateway.without_gateway(engines.buckets(engines.PER_TOKEN, window)), pod),
    }


def window_of(seconds: float) -> int:
    """The length that a service's window is counted over."""
    return next((window for window in WINDOWS if window >= seconds), WINDOWS[-1])


def read(ask: Ask, windows: set[int], pool: Executor) -> dict[int, Figures]:
    """Ask for every length of window; one that is not answered in full is left out."""
    jobs = {
        window: {name: pool.submit(ask, query) for name, query in queries(window).items()} for window in sorted(windows)
    }
    found = {}
    for window, asked in jobs.items():
        try:
            rows = {name: job.result() for name, job in asked.items()}
        except Unanswered:
            continue
        histograms = {name: collect(vector) for name, vector in rows.items() if name != "judged"}
        found[window] = Figures(
            _by_service(rows["judged"]),
            histograms["ttft"],
            histograms["tpot"],
            *(_by_service(histograms[name]) for name in ("whole", "first", "step")),
        )
    return found


def _by_service(rows: Mapping[Key, Found]) -> dict[Key, dict[Key, Found]]:
    found: dict[Key, dict[Key, Found]] = {}
    for key, value in rows.items():
        found.setdefault(key[:2], {})[key[2:]] = value
    return found


def attained(pods: Pods, figures: Figures, objectives: Objectives) -> Attained | None:
    """How well one service did, or None where nothing was judged."""
    key = (pods.namespace, pods.service)
    judged = figures.judged.get(key, {}) if pods.gateways else {}
    if sum(judged.values()) > 0:
        return _counted(judged, figures.ttft.get(key, ()), figures.tpot.get(key, ()))
    return None if pods.gateways else _estimated(pods, figures, objectives)


def _counted(judged: Counts, ttft: Histogram, tpot: Histogram) -> Attained:
    every = sum(judged.values())
    met = sum(count for (first, step), count in judged.items() if first == step == "true")
    by_ttft = sum(count for (first, _), count in judged.items() if first == "true")
    by_tpot = sum(count for (_, step), count in judged.items() if step == "true")
    return Attained(every, met / every, _latency(ttft, by_ttft / every), _latency(tpot, by_tpot / every))


def _estimated(pods: Pods, figures: Figures, objectives: Objectives) -> Attained | None:
    roles: dict[Key, str] = {(engine.replica.name,): engine.replica.role for engine in pods.engines}

    def of(found: Mapping[Key, Mapping[Key, Histogram]], *wanted: str) -> Histogram:
        mine = found.get((pods.namespace, pods.service), {})
        return merged([histogram for pod, histogram in mine.items() if roles.get(pod) in wanted])

    first = of(figures.first, AGGREGATED)
    if total(first) <= 0:
        first = convolved(of(figures.whole, PREFILL), of(figures.first, DECODE))
    step = of(figures.step, DECODE, AGGREGATED)
    if total(first) <= 0 and total(step) <= 0:
        return None
    shares = [_share(first, objectives.ttft), _share(step, objectives.tpot)]
    both = shares[0] * shares[1] if shares[0] is not None and shares[1] is not None else None
    return Attained(None, both, _latency(first, shares[0]), _latency(step, shares[1]))


def _share(histogram: Histogram, limit: float | None) -> float | None:
    return 1.0 if limit is None else share_within(histogram, limit)


def _latency(histogram: Histogram, met: float | None) -> Latency:
    return Latency(met, tuple(percentile(histogram, share) for share in PERCENTILES))

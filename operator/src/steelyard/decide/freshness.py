"""Is what decisions need measured, and new enough? The condition MetricsFresh of one service at one tick."""

from dataclasses import dataclass

from steelyard.api.reasons import ConditionType, Reason
from steelyard.decide.conditions import Verdict

DEGRADED_SECONDS = 7.5  # between scrapes: half again as long as ours
UNMATCHED_TICKS = 3  # until ready replicas without a single series are told: new targets take a scrape or two
ENGINE_METRIC = "vllm:num_requests_running or sglang:num_running_reqs"


@dataclass(frozen=True)
class Scraped:
    """What is known about the measuring of one service."""

    fault: str | None  # why Prometheus gave no answer at all, or none about the engines' load
    targets: int | None  # pods of the service that it tries to scrape; None: it knows none
    ready: int  # engine pods that are ready
    sampled: int  # of these, with a sample of their own
    gauged: int  # of these, with the gauges that tell their load
    age: float | None  # seconds since the newest sample of any pod of the service
    interval: float | None  # seconds between scrapes, as measured
    limit: float  # age in seconds up to which a sample counts
    unmatched: int = 0  # ticks in a row, this one included, without any target


def metrics_fresh(seen: Scraped) -> Verdict:
    """Judge; first row that holds:

    | state | status | reason |
    |---|---|---|
    | Prometheus does not answer | False | PrometheusUnreachable |
    | no engine is ready | Unknown | NoReadyReplicas |
    | it has no target of this service, for three ticks | False | NoMatchingSeries |
    | it has targets and no sample of any | False | ScrapesFailing |
    | the newest sample is too old | False | SamplesStale |
    | no ready engine has the gauge of its load, though it is scraped | False | EngineMetricMissing |
    | some ready engine has none | True | PartlyUnknown |
    | scrapes are far apart | True | DegradedInterval |
    | else | True | Fresh |
    """
    kind = ConditionType.METRICS_FRESH
    if seen.fault is not None:
        return Verdict(
            kind, "False", Reason.PROMETHEUS_UNREACHABLE, f"{seen.fault}; replicas and roles stay as they are"
        )
    if seen.ready == 0:
        return Verdict(kind, "Unknown", Reason.NO_READY_REPLICAS, "no engine is ready to be measured")
    if not seen.targets:
        if seen.unmatched < UNMATCHED_TICKS:
            return Verdict(kind, "Unknown", Reason.NO_MATCHING_SERIES, "Prometheus has not found the pods yet")
        return Verdict(
            kind,
            "False",
            Reason.NO_MATCHING_SERIES,
            f"{seen.ready} engines are ready and Prometheus has no series up{{namespace, service, pod}} of this service: "
            "does it scrape the pods labelled app.kubernetes.io/managed-by=steelyard, and set the label service?",
        )
    if seen.age is None:
        return Verdict(
            kind,
            "False",
            Reason.SCRAPES_FAILING,
            f"none of {seen.targets} targets can be scraped: may Prometheus reach them (value prometheusNamespace)?",
        )
    if seen.age > seen.limit:
        said = f"the newest sample is more than {_steps(seen.age, seen.limit):.0f} s old"
        return Verdict(kind, "False", Reason.SAMPLES_STALE, f"{said}; replicas and roles stay as they are")
    if seen.sampled and not seen.gauged:
        said = f"engines are scraped and none has {ENGINE_METRIC}"
        return Verdict(kind, "False", Reason.ENGINE_METRIC_MISSING, said)
    if seen.gauged < seen.ready:
        said = f"{seen.ready - seen.gauged} of {seen.ready} ready engines are not measured; nothing is taken away meanwhile"
        return Verdict(kind, "True", Reason.PARTLY_UNKNOWN, said)
    if seen.interval is not None and seen.interval > DEGRADED_SECONDS:
        said = f"scrapes are {seen.interval:.0f} s apart; bursts are seen late, 5 s is what the autoscaler wants"
        return Verdict(kind, "True", Reason.DEGRADED_INTERVAL, said)
    return Verdict(kind, "True", Reason.FRESH, "every ready engine is measured")


def _steps(age: float, limit: float) -> float:
    """The age in doublings of the limit: a figure that grew with every tick would be a status write at every tick."""
    step = limit
    while 2 * step < age:
        step *= 2
    return step

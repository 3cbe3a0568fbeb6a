"""The operator's own metrics. Names end in units; labels are bounded by the services and roles that exist."""

from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from steelyard.api.reasons import ConditionType
from steelyard.decide.attained import Attained
from steelyard.decide.scale.bounds import accelerators
from steelyard.decide.scale.decision import Decision
from steelyard.decide.scale.signals import Limits, Objectives
from steelyard.observe.wire import Answer

REGISTRY = CollectorRegistry()

RECONCILES = Counter(
    "steelyard_reconcile_total",
    "Reconciles by their end: done, waiting, refused, failed.",
    ["result"],
    registry=REGISTRY,
)
RECONCILE_SECONDS = Histogram(
    "steelyard_reconcile_seconds",
    "Time of one reconcile.",
    buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30),
    registry=REGISTRY,
)
REPLICAS = Gauge(
    "steelyard_replicas",
    "Replicas of a role by state: desired, ready, starting, draining.",
    ["namespace", "service", "role", "state"],
    registry=REGISTRY,
)
START_SECONDS = Histogram(
    "steelyard_start_seconds",
    "Time of one replica's start by phase: scheduled, pulled, weights, ready.",
    ["namespace", "service", "role", "phase"],
    buckets=(1, 3, 10, 30, 60, 120, 300, 600, 1200, 3600),
    registry=REGISTRY,
)
CHILD_WRITES = Counter(
    "steelyard_child_writes_total",
    "Writes of children by kind of change: created, updated, repaired, pruned, scaled.",
    ["change"],
    registry=REGISTRY,
)
STATUS_WRITES = Counter("steelyard_status_writes_total", "Writes of a service's status.", registry=REGISTRY)
API_REQUESTS = Counter(
    "steelyard_api_requests_total",
    "Answers of the API server to this replica's reads and writes by method and HTTP status; watches are not counted.",
    ["method", "code"],
    registry=REGISTRY,
)
API_BYTES = Counter(
    "steelyard_api_bytes_total",
    "Bytes of the bodies of those requests (out) and answers (in).",
    ["direction"],
    registry=REGISTRY,
)
LEADING = Gauge("steelyard_leading", "1 while this replica holds the lease.", registry=REGISTRY)
OLDEST_WAIT_SECONDS = Gauge(
    "steelyard_queue_oldest_wait_seconds", "How long the longest-overdue service has waited.", registry=REGISTRY
)
QUEUE_LENGTH = Gauge("steelyard_queue_length", "Services known to the work queue.", registry=REGISTRY)

TICK_SECONDS = Histogram(
    "steelyard_tick_seconds",
    "Time of one tick of the autoscaler, over all services.",
    buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 5, 10, 30),
    registry=REGISTRY,
)
TICK_INTERVAL_SECONDS = Gauge(
    "steelyard_tick_interval_seconds", "Time from one tick of the autoscaler to the next.", registry=REGISTRY
)
QUERIES = Counter(
    "steelyard_prometheus_queries_total", "Queries to Prometheus by their end.", ["result"], registry=REGISTRY
)
DECISIONS = Counter(
    "steelyard_decision_total",
    "Decisions by what they did (scaled, relabelled, recommended, none) and what limited them.",
    ["action", "limited_by"],
    registry=REGISTRY,
)
NEED = Gauge(
    "steelyard_need_replicas",
    "Replicas that the load needs, by term.",
    ["namespace", "service", "term"],
    registry=REGISTRY,
)
DECODE_SLOTS = Gauge(
    "steelyard_decode_slots",
    "Sequences that the gateways were told to let one decode replica hold.",
    ["namespace", "service"],
    registry=REGISTRY,
)
ATTAINMENT = Gauge(
    "steelyard_attainment_ratio",
    "Share of requests that met an objective over the service's window: ttft, tpot, all.",
    ["namespace", "service", "objective"],
    registry=REGISTRY,
)
METRICS_AGE_SECONDS = Gauge(
    "steelyard_metrics_age_seconds",
    "Age of the newest sample of a service.",
    ["namespace", "service"],
    registry=REGISTRY,
)
CONDITION = Gauge(
    "steelyard_condition",
    "1 where a condition of a service is True, 0 where it is False; no series where it is unknown.",
    ["namespace", "service", "type", "reason"],
    registry=REGISTRY,
)
TARGET = Gauge(
    "steelyard_objective_attainment_ratio",
    "Share of requests that the spec asks to meet the objectives.",
    ["namespace", "service"],
    registry=REGISTRY,
)
OBJECTIVE_SECONDS = Gauge(
    "steelyard_objective_seconds",
    "Times that the spec promises: ttft, tpot.",
    ["namespace", "service", "objective"],
    registry=REGISTRY,
)
ACCELERATORS = Gauge(
    "steelyard_accelerators",
    "Accelerators of a service: used, by the replicas that are there, and budget, where the spec sets one.",
    ["namespace", "service", "kind"],
    registry=REGISTRY,
)
ROLE_CHANGES = Counter("steelyard_role_changes_total", "Replicas that were given another role.", registry=REGISTRY)

_OF_SERVICES = (
    REPLICAS, START_SECONDS, NEED, DECODE_SLOTS, ATTAINMENT, METRICS_AGE_SECONDS, CONDITION, TARGET, OBJECTIVE_SECONDS,
    ACCELERATORS,
)  # fmt: skip
_shown: dict[tuple[str, str, str], tuple[str, str]] = {}
"""By namespace, service and type of condition the status and the reason that its gauge shows."""
STATES = ("desired", "ready", "starting", "draining")
ROLES = ("prefill", "decode", "aggregated")


def count_call(method: str, answer: Answer) -> None:
    """Count one exchange with the API server."""
    API_REQUESTS.labels(method, answer.status).inc()
    API_BYTES.labels("out").inc(answer.sent)
    API_BYTES.labels("in").inc(answer.received)


def show_status(namespace: str, service: str, status: dict[str, Any]) -> None:
    """Set the gauges of one service from the reconcile's part of its status: conditions and replicas; roles it does not have
    disappear."""
    show_conditions(namespace, service, status.get("conditions", ()))
    for role in ROLES:
        counts = status.get(role)
        for state in STATES:
            if isinstance(counts, dict):
                REPLICAS.labels(namespace, service, role, state).set(float(counts.get(state, 0)))
            else:
                REPLICAS.remove(namespace, service, role, state)


def forget_services() -> None:
    """Drop the series of all services: whoever leads tells them, and what another once knew is no longer so."""
    for gauge in _OF_SERVICES:
        gauge.clear()
    _shown.clear()


def forget_service(namespace: str, service: str) -> None:
    """Drop the series of a service that is gone."""
    for gauge in _OF_SERVICES:
        gauge.remove_by_labels({"namespace": namespace, "service": service})
    for kind in ConditionType:
        _shown.pop((namespace, service, kind), None)


def show_conditions(
    namespace: str, service: str, conditions: Iterable[Mapping[str, object]], own: Iterable[str] = ()
) -> None:
    """Set the gauges of these conditions of a service; those of `own` that are not among them are not known any more, of
    others nothing changes. Costs nothing where they stand as before."""
    found = dict.fromkeys(own, ("Unknown", "")) | {
        str(one["type"]): (str(one["status"]), str(one["reason"])) for one in conditions
    }
    for kind, now in found.items():
        key = (namespace, service, kind)
        before = _shown.get(key)
        if now == before:
            continue
        _shown[key] = now
        if before is not None:
            CONDITION.remove(*key, before[1])
        if now[0] != "Unknown":
            CONDITION.labels(*key, now[1]).set(now[0] == "True")


def show_promise(namespace: str, service: str, promised: Objectives, limits: Limits, used: Mapping[str, int]) -> None:
    """Set what a spec promises, and the accelerators that its replicas take, `used` of each role, and may take."""
    TARGET.labels(namespace, service).set(promised.attainment)
    known, budget = {role: used.get(role, 0) for role in limits.roles}, limits.accelerators
    for gauge, values in (
        (OBJECTIVE_SECONDS, {"ttft": promised.ttft, "tpot": promised.tpot}),
        (ACCELERATORS, {"used": accelerators(known, limits), "budget": budget}),
    ):
        for label, value in values.items():
            if value is None:
                gauge.remove(namespace, service, label)
            else:
                gauge.labels(namespace, service, label).set(value)


def show_attainment(namespace: str, service: str, found: Attained | None) -> None:
    """Set the shares that met the objectives; what is not known has no series."""
    shares = {"ttft": found.ttft.met, "tpot": found.tpot.met, "all": found.met} if found else {}
    for objective in ("ttft", "tpot", "all"):
        share = shares.get(objective)
        if share is None:
            ATTAINMENT.remove(namespace, service, objective)
        else:
            ATTAINMENT.labels(namespace, service, objective).set(share)


def show_age(namespace: str, service: str, age: float | None) -> None:
    """Set the age of a service's newest sample; where there is none there is no series."""
    if age is None:
        METRICS_AGE_SECONDS.remove(namespace, service)
    else:
        METRICS_AGE_SECONDS.labels(namespace, service).set(age)


def count_decision(
    namespace: str, service: str, decision: Decision, scaled: tuple[str, ...], relabelled: tuple[str, ...]
) -> None:
    """Count one decision by what was carried out of it, and show its terms."""
    action = "scaled" if scaled else "relabelled" if relabelled else "none" if decision.act else "recommended"
    DECISIONS.labels(action, decision.limited_by.value).inc()
    ROLE_CHANGES.inc(len(relabelled))
    for term in decision.terms:
        NEED.labels(namespace, service, term.name).set(term.replicas)

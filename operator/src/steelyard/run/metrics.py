"""The operator's own metrics. Names end in units; labels are bounded by the services and roles that exist."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

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
    "Bytes of those requests (out) and answers (in) above TLS.",
    ["direction"],
    registry=REGISTRY,
)
LEADING = Gauge("steelyard_leading", "1 while this replica holds the lease.", registry=REGISTRY)
OLDEST_WAIT_SECONDS = Gauge(
    "steelyard_queue_oldest_wait_seconds", "How long the longest-overdue service has waited.", registry=REGISTRY
)
QUEUE_LENGTH = Gauge("steelyard_queue_length", "Services known to the work queue.", registry=REGISTRY)

STATES = ("desired", "ready", "starting", "draining")
ROLES = ("prefill", "decode", "aggregated")


def count_call(method: str, answer: Answer) -> None:
    """Count one exchange with the API server."""
    API_REQUESTS.labels(method, answer.status).inc()
    API_BYTES.labels("out").inc(answer.sent)
    API_BYTES.labels("in").inc(answer.received)


def show_replicas(namespace: str, service: str, status: dict[str, object]) -> None:
    """Set the gauges of one service from its status; roles it does not have disappear."""
    for role in ROLES:
        counts = status.get(role)
        for state in STATES:
            if isinstance(counts, dict):
                REPLICAS.labels(namespace, service, role, state).set(float(counts.get(state, 0)))
            else:
                REPLICAS.remove(namespace, service, role, state)


def forget_service(namespace: str, service: str) -> None:
    """Drop the series of a service that is gone."""
    REPLICAS.remove_by_labels({"namespace": namespace, "service": service})

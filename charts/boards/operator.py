"""The operator: does it lead, keep its ticks, and get through to the API server and Prometheus?"""

from charts.boards.panels import Board, Panel

SPAN = "[$__rate_interval]"


def percentiles(metric: str) -> dict[str, str]:
    """The median and the 90th percentile of a histogram of the operator."""
    buckets = f"sum by (le) (rate({metric}_bucket{SPAN}))"
    return {f"p{round(100 * share)}": f"histogram_quantile({share}, {buckets})" for share in (0.5, 0.9)}


DECIDING = (
    Panel("Leads", "One replica does; the others stand by.", "short", {"{{pod}}": "max by (pod) (steelyard_leading)"}),
    Panel("Time of a tick", "Of the autoscaler, over all services.", "s", percentiles("steelyard_tick_seconds")),
    Panel(
        "Decisions",
        "Per second, by what they did.",
        "short",
        {"{{action}}": f"sum by (action) (rate(steelyard_decision_total{SPAN}))"},
        stacked=True,
    ),
    Panel(
        "Decisions that were limited",
        "Per second, by what limited them.",
        "short",
        {"{{limited_by}}": f'sum by (limited_by) (rate(steelyard_decision_total{{limited_by!="None"}}{SPAN}))'},
        stacked=True,
    ),
    Panel(
        "Queries to Prometheus",
        "Per second, by their end.",
        "short",
        {"{{result}}": f"sum by (result) (rate(steelyard_prometheus_queries_total{SPAN}))"},
    ),
    Panel(
        "Age of the newest sample",
        "Of each service; decisions hold when it is old.",
        "s",
        {"{{namespace}}/{{service}}": "max by (namespace, service) (steelyard_metrics_age_seconds)"},
    ),
)
DOING = (
    Panel(
        "Reconciles",
        "Per second, by their end.",
        "short",
        {"{{result}}": f"sum by (result) (rate(steelyard_reconcile_total{SPAN}))"},
        stacked=True,
    ),
    Panel("Time of a reconcile", "From a look to the written status.", "s", percentiles("steelyard_reconcile_seconds")),
    Panel(
        "Work queue",
        "Seconds that the longest-overdue service has waited.",
        "s",
        {"{{pod}}": "max by (pod) (steelyard_queue_oldest_wait_seconds)"},
    ),
    Panel(
        "Writes of children",
        "Per second, by kind of change.",
        "short",
        {"{{change}}": f"sum by (change) (rate(steelyard_child_writes_total{SPAN}))"},
    ),
    Panel(
        "Answers of the API server",
        "Per second, by method and status.",
        "reqps",
        {"{{method}} {{code}}": f"sum by (method, code) (rate(steelyard_api_requests_total{SPAN}))"},
        stacked=True,
    ),
    Panel(
        "Replicas that changed roles",
        "Per second.",
        "short",
        {"role changes": f"sum(rate(steelyard_role_changes_total{SPAN}))"},
    ),
)
BOARD = Board(
    name="operator",
    title="Steelyard / operator",
    rows={"Deciding": DECIDING, "Doing": DOING},
    of={},
    moments={},
)

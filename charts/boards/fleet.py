"""All services: who misses objectives, who takes how many accelerators, whose conditions need somebody."""

from charts.boards.panels import Board, Panel

EACH = "by (namespace, service)"
SPAN = "[$__rate_interval]"
NAME = "{{namespace}}/{{service}}"
OVERVIEW = (
    Panel(
        "Services",
        "The newest figures of each.",
        "short",
        {
            "met": f'max {EACH} (steelyard_attainment_ratio{{objective="all"}})',
            "asked": f"max {EACH} (steelyard_objective_attainment_ratio)",
            "used": f'max {EACH} (steelyard_accelerators{{kind="used"}})',
            "budget": f'max {EACH} (steelyard_accelerators{{kind="budget"}})',
            "ready": f'sum {EACH} (max by (namespace, service, role) (steelyard_replicas{{state="ready"}}))',
        },
        columns={
            "namespace": "namespace",
            "service": "service",
            "Value #A": "met",
            "Value #B": "asked",
            "Value #C": "accelerators",
            "Value #D": "budget",
            "Value #E": "ready replicas",
        },
    ),
    Panel(
        "What needs somebody",
        "Conditions that are False, with their reasons.",
        "short",
        {
            "": 'max by (namespace, service, type, reason) (steelyard_condition{type=~"Accepted|Available|MetricsFresh"} == 0)'
        },
        columns={"namespace": "namespace", "service": "service", "type": "condition", "reason": "reason"},
    ),
    Panel(
        "Limited",
        "Services whose load needs more than they may have, with what limits them.",
        "short",
        {"": 'max by (namespace, service, reason) (steelyard_condition{type="ScalingLimited"} == 1)'},
        columns={"namespace": "namespace", "service": "service", "reason": "limit"},
    ),
)
SHARES = (
    Panel(
        "Requests that met the objectives",
        "Of each service, over its own window.",
        "percentunit",
        {NAME: f'max {EACH} (steelyard_attainment_ratio{{objective="all"}})'},
    ),
    Panel(
        "Accelerators in use",
        "Of all services.",
        "short",
        {NAME: f'max {EACH} (steelyard_accelerators{{kind="used"}})'},
        stacked=True,
    ),
    Panel(
        "Goodput of an accelerator",
        "Requests per second that met the objectives, for each accelerator in use.",
        "reqps",
        {
            NAME: f'sum {EACH} (rate(steelyard_gateway_requests_total{{ttft_met="true", tpot_met="true"}}{SPAN}))'
            f' / on (namespace, service) max {EACH} (steelyard_accelerators{{kind="used"}})'
        },
    ),
)
BOARD = Board(
    name="fleet",
    title="Steelyard / fleet",
    rows={"Now": OVERVIEW, "Over time": SHARES},
    of={},
    moments={},
)

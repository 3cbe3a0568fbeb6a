"""One service: are its objectives met, with how many accelerators, and where does a request wait?"""

from charts.boards.panels import ABOUT, Board, Panel

JUDGED = f'steelyard_gateway_requests_total{{{ABOUT}, outcome=~"completed|failed|refused"}}'
MET = f'steelyard_gateway_requests_total{{{ABOUT}, ttft_met="true", tpot_met="true"}}'
SPAN = "[$__rate_interval]"


def percentiles(metric: str) -> dict[str, str]:
    """The median, the 95th and the 99th percentile of a histogram of the gateways."""
    buckets = f"sum by (le) (rate({metric}_bucket{{{ABOUT}}}{SPAN}))"
    return {f"p{round(100 * share)}": f"histogram_quantile({share}, {buckets})" for share in (0.5, 0.95, 0.99)}


def either(*metrics: str) -> str:
    """A gauge of each pod under the name that its engine gives it."""
    return " or ".join(f"sum by (pod) ({metric}{{{ABOUT}}})" for metric in metrics)


def objective(name: str) -> dict[str, str]:
    """The line of an objective."""
    return {"objective": f'max(steelyard_objective_seconds{{{ABOUT}, objective="{name}"}})'}


OBJECTIVES = (
    Panel(
        "Requests that met the objectives",
        "Of those that ended, without what clients cancelled; beside it the share that the spec asks for.",
        "percentunit",
        {
            "met": f"sum(rate({MET}{SPAN})) / sum(rate({JUDGED}{SPAN}))",
            "asked": f"max(steelyard_objective_attainment_ratio{{{ABOUT}}})",
        },
    ),
    Panel(
        "Time to first token",
        "From a request's arrival at the gateway to its first token.",
        "s",
        percentiles("steelyard_gateway_ttft_seconds") | objective("ttft"),
    ),
    Panel(
        "Time per output token",
        "Mean of a request after its first token.",
        "s",
        percentiles("steelyard_gateway_tpot_seconds") | objective("tpot"),
    ),
    Panel(
        "Requests by outcome",
        "Per second. Refused ones were told to come again; failed ones had an engine's error.",
        "reqps",
        {"{{outcome}}": f"sum by (outcome) (rate(steelyard_gateway_requests_total{{{ABOUT}}}{SPAN}))"},
        stacked=True,
    ),
    Panel(
        "Met, by prompt length",
        "Nobody is sacrificed for the average: short and long prompts side by side.",
        "percentunit",
        {
            "{{length_class}}": f"sum by (length_class) (rate({MET}{SPAN})) / sum by (length_class) (rate({JUDGED}{SPAN}))"
        },
    ),
    Panel(
        "Arriving prompt tokens",
        "Per second; uncached ones are what prefill has to compute.",
        "short",
        {
            "uncached": f"sum(rate(steelyard_gateway_uncached_tokens_total{{{ABOUT}}}{SPAN}))",
            "answered": f"sum(rate(steelyard_gateway_prompt_tokens_total{{{ABOUT}}}{SPAN}))",
        },
    ),
)
REPLICAS = (
    Panel(
        "Replicas",
        "Ready ones by role, and those that the last decision asks for.",
        "short",
        {
            "{{role}} ready": f'max by (role) (steelyard_replicas{{{ABOUT}, state="ready"}})',
            "{{role}} desired": f'max by (role) (steelyard_replicas{{{ABOUT}, state="desired"}})',
        },
    ),
    Panel(
        "Prefill for each decode",
        "Ready replicas; marks are changes of what is asked for.",
        "short",
        {
            "prefill:decode": f'max(steelyard_replicas{{{ABOUT}, role="prefill", state="ready"}})'
            f' / max(steelyard_replicas{{{ABOUT}, role="decode", state="ready"}})'
        },
    ),
    Panel(
        "Need by term",
        "Replicas that bursts, the steady rate and decode ask for; the largest rules.",
        "short",
        {"{{term}}": f"max by (term) (steelyard_need_replicas{{{ABOUT}}})"},
    ),
    Panel(
        "Accelerators",
        "Used, and what the budget pays for.",
        "short",
        {"{{kind}}": f"max by (kind) (steelyard_accelerators{{{ABOUT}}})"},
    ),
    Panel(
        "Goodput of an accelerator",
        "Requests per second that met the objectives, for each accelerator in use.",
        "reqps",
        {"goodput": f'sum(rate({MET}{SPAN})) / max(steelyard_accelerators{{{ABOUT}, kind="used"}})'},
    ),
    Panel(
        "Time of a start",
        "Mean by phase over the last hour: scheduled, pulled, weights, ready.",
        "s",
        {
            "{{role}} {{phase}}": f"sum by (role, phase) (rate(steelyard_start_seconds_sum{{{ABOUT}}}[1h]))"
            f" / sum by (role, phase) (rate(steelyard_start_seconds_count{{{ABOUT}}}[1h]))"
        },
    ),
)
WAYS = (
    Panel(
        "Waiting in the gateway",
        "Requests by role; late ones can no longer meet their objective.",
        "short",
        {
            "{{role}}": f"sum by (role) (steelyard_gateway_queued_requests{{{ABOUT}}})",
            "{{role}} late": f"sum by (role) (steelyard_gateway_late_requests{{{ABOUT}}})",
        },
    ),
    Panel(
        "Running in engines",
        "Sequences of each pod.",
        "short",
        {"{{pod}}": either("vllm:num_requests_running", "sglang:num_running_reqs")},
    ),
    Panel(
        "Waiting in engines",
        "Sequences of each pod that have no place in a batch yet.",
        "short",
        {"{{pod}}": either("vllm:num_requests_waiting", "sglang:num_queue_reqs")},
    ),
    Panel(
        "KV memory in use",
        "Share of each pod; sequences are thrown out when it is full.",
        "percentunit",
        {"{{pod}}": either("vllm:kv_cache_usage_perc", "sglang:token_usage")},
    ),
    Panel(
        "Hand-off from prefill to decode",
        "From the end of prefill to the first token out of decode.",
        "s",
        percentiles("steelyard_gateway_handoff_seconds"),
    ),
    Panel(
        "Prompts computed twice, KV given up",
        "Per second: hand-offs that failed, were missing, or ran out of time.",
        "reqps",
        {
            "recomputed": f"sum(rate(steelyard_gateway_recomputed_total{{{ABOUT}}}{SPAN}))",
            "missing": f"sum(rate(steelyard_gateway_handoffs_missing_total{{{ABOUT}}}{SPAN}))",
            "expired": f"sum(rate(steelyard_engine_kv_expired_total{{{ABOUT}}}{SPAN}))",
        },
    ),
    Panel(
        "Prompt tokens by where their KV came from",
        "Per second: computed, found in a cache, fetched from prefill.",
        "short",
        {"{{source}}": f"sum by (source) (rate(vllm:prompt_tokens_by_source_total{{{ABOUT}}}{SPAN}))"},
        stacked=True,
    ),
    Panel(
        "Sequences thrown out",
        "Per second, for want of KV memory; each is computed again.",
        "short",
        {"{{pod}}": f"sum by (pod) (rate(vllm:num_preemptions_total{{{ABOUT}}}{SPAN}))"},
    ),
    Panel(
        "Guesses that were right",
        "Share of the tokens that speculation proposed.",
        "percentunit",
        {
            "{{pod}}": f"sum by (pod) (rate(vllm:spec_decode_num_accepted_tokens_total{{{ABOUT}}}{SPAN}))"
            f" / sum by (pod) (rate(vllm:spec_decode_num_draft_tokens_total{{{ABOUT}}}{SPAN}))"
        },
    ),
)
BOARD = Board(
    name="service",
    title="Steelyard / service",
    rows={"Objectives": OBJECTIVES, "Replicas": REPLICAS, "Queues and KV": WAYS},
    of={"namespace": "steelyard_condition", "service": 'steelyard_condition{namespace="$namespace"}'},
    moments={"scaled": f'changes(steelyard_replicas{{{ABOUT}, state="desired"}}[30s]) > 0'},
)

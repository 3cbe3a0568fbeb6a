"""What engines call the things that the autoscaler reads, and the PromQL that gives each under one meaning.

Every name of one thing stands in one list, the preferred one first: a version of an engine that exports an old and a new
name is read once, and pods of both versions side by side are all read (`or` takes the right side only for pods that the
left side lacks). Our own engine uses vLLM's names. Rates are taken per series before they are summed, so that a restart is
no spike. Ranks of one pod are told apart by RANK; labels of the scraper are not, so a pod that two jobs scrape counts once.

| | vLLM | SGLang | TensorRT-LLM |
|---|---|---|---|
| versions | 0.8 to 0.32 | 0.4 to 0.5 | 1.3, by the names in its source: none was scraped here |
| new tokens of a prefill | by source, or prompt less hits of the prefix cache | prompt less cached | likewise, if counted |
| KV use | share, 0 to 1 (never percent, whatever the name says) | share | share |
| a decode step | between two tokens | between two tokens | a request's mean between two tokens |
| ranks | `engine` | `dp_rank` | one page tells of the first rank alone |
| counters of tokens grow | at each step | when a request has finished | likewise |

So what SGLang and TensorRT-LLM compute and generate a second lags by about a request's length: with long answers load is seen late.
"""

from dataclasses import dataclass

SERVICE = ("namespace", "service")
POD = ("namespace", "service", "pod")
RANK = (*POD, "model_name", "engine", "dp_rank")
"""`engine` is vLLM's rank of data parallelism, `dp_rank` SGLang's."""


@dataclass(frozen=True)
class Series:
    """A metric's name and, where one name holds several things, the matcher that picks one."""

    name: str
    matcher: str = ""

    def select(self, suffix: str = "") -> str:
        """The selector of this metric in pods that belong to a service of ours."""
        picked = f", {self.matcher}" if self.matcher else ""
        return f'{self.name}{suffix}{{service!=""{picked}}}'


RUNNING = (
    Series("vllm:num_requests_running"),
    Series("sglang:num_running_reqs"),
    Series("trtllm_num_requests_running"),
)
WAITING = (
    Series("vllm:num_requests_waiting"),
    Series("sglang:num_queue_reqs"),
    Series("trtllm_num_requests_waiting"),
)
KV_USE = (
    Series("vllm:kv_cache_usage_perc"),
    Series("vllm:gpu_cache_usage_perc"),
    Series("sglang:token_usage"),
    Series("trtllm_kv_cache_utilization"),
)
GENERATED = (
    Series("vllm:generation_tokens_total"),
    Series("sglang:generation_tokens_total"),
    Series("trtllm_generation_tokens_total"),
)
GAP = (
    Series("vllm:inter_token_latency_seconds"),
    Series("vllm:time_per_output_token_seconds"),
    Series("sglang:inter_token_latency_seconds"),
    Series("sglang:time_per_output_token_seconds"),
    Series("trtllm_time_per_output_token_seconds"),
)
"""Histograms of the time between two tokens: a decode step as sequences feel it."""
PREFILL = (
    Series("vllm:request_prefill_time_seconds"),
    Series("sglang:per_stage_req_latency_seconds", 'stage="prefill_forward"'),
    Series("trtllm_request_prefill_time_seconds"),
)
"""Histograms of a prompt's time in prefill, without waiting."""
COMPUTED = (Series("vllm:prompt_tokens_by_source_total", 'source="local_compute"'),)
PROMPT_LESS_CACHED = (
    (Series("vllm:prompt_tokens_total"), Series("vllm:prefix_cache_hits_total")),
    (Series("sglang:prompt_tokens_total"), Series("sglang:cached_tokens_total")),
    (Series("trtllm_prompt_tokens_total"), Series("trtllm_prompt_cached_tokens_total")),
)
FIRST_TOKEN = (
    Series("vllm:time_to_first_token_seconds"),
    Series("sglang:time_to_first_token_seconds"),
    Series("trtllm_time_to_first_token_seconds"),
)
WHOLE = (
    Series("vllm:e2e_request_latency_seconds"),
    Series("sglang:e2e_request_latency_seconds"),
    Series("trtllm_e2e_request_latency_seconds"),
)
PER_TOKEN = (Series("vllm:request_time_per_output_token_seconds"), *GAP)
"""Histograms with one value a request; where a version has none, one value a token has to do."""


def by(labels: tuple[str, ...]) -> str:
    """The grouping clause."""
    return f"by ({', '.join(labels)})"


def first_of(*texts: str) -> str:
    """The first text that has a value, pod by pod."""
    return " or ".join(f"({text})" for text in texts)


def gauge(things: tuple[Series, ...], recent: int) -> str:
    """A gauge of each pod, summed over its ranks: its newest value of the last `recent` seconds, so that one scrape that
    failed does not make a pod unknown."""
    return first_of(*(f"sum {by(POD)} (max {by(RANK)} ({last(series.select(), recent)}))" for series in things))


def share(things: tuple[Series, ...], recent: int) -> str:
    """A share of each pod: of its fullest rank; its newest value of the last `recent` seconds."""
    return first_of(*(f"max {by(POD)} ({last(series.select(), recent)})" for series in things))


def last(selector: str, recent: int) -> str:
    """The newest value of the last `recent` seconds of each series, also of one whose last scrape failed."""
    return f"last_over_time({selector}[{recent}s])"


def rate(things: tuple[Series, ...], span: int, suffix: str = "") -> str:
    """A counter of each pod per second over `span` seconds, summed over its ranks."""
    return first_of(*(_rate(series, span, suffix) for series in things))


def mean(things: tuple[Series, ...], span: int) -> str:
    """The mean of a histogram of each pod over `span` seconds; no value where nothing was observed (0/0)."""
    return first_of(*(f"{_rate(series, span, '_sum')} / {_rate(series, span, '_count')}" for series in things))


def slope(things: tuple[Series, ...], span: int) -> str:
    """How fast a gauge of each pod rises, per second over `span` seconds, summed over its ranks."""
    return first_of(
        *(f"sum {by(POD)} (max {by(RANK)} (deriv({series.select()}[{span}s])))" for series in things),
    )


def new_tokens(span: int) -> str:
    """Uncached prompt tokens that each pod computes per second over `span` seconds."""
    differences = (f"{_rate(all_, span)} - {_rate(cached, span)}" for all_, cached in PROMPT_LESS_CACHED)
    return first_of(*(_rate(series, span) for series in COMPUTED), *differences)


def buckets(things: tuple[Series, ...], span: int) -> str:
    """The cumulative buckets of a histogram of each pod, as rates over `span` seconds."""
    labels = (*POD, "le")
    ranks = (*RANK, "le")
    return first_of(
        *(f"sum {by(labels)} (max {by(ranks)} (rate({series.select('_bucket')}[{span}s])))" for series in things)
    )


def _rate(series: Series, span: int, suffix: str = "") -> str:
    return f"sum {by(POD)} (max {by(RANK)} (rate({series.select(suffix)}[{span}s])))"

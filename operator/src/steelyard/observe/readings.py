"""One tick's look at Prometheus: a constant set of queries for all services, and answers that know what they do not know.

The number of queries does not grow with the fleet: those over a span are asked once for each span in use, of which there
are at most four (SPANS); a service's span is the shortest that holds four scrapes. Asked are, per pod: the age of the
newest sample, running, waiting, KV use, outstanding prompt tokens, tokens, step and prefill times; everything else per
service.
"""

from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field

from steelyard.decide.queue.windows import WINDOW_SECONDS, WINDOWS
from steelyard.observe import metrics_engines as engines
from steelyard.observe import metrics_gateway as gateway
from steelyard.observe.answers import Unanswered, Vector
from steelyard.observe.metrics_engines import POD, SERVICE
from steelyard.observe.prometheus import Ask, Query

SPANS = (20, 60, 120, 240)  # seconds of a rate; by the scrape interval
SAMPLES = 3.5  # scrape intervals that a span must hold: four scrapes, also where they come a little late
RECENT = 3  # quarters of a span in which a gauge's newest value is looked for
JUDGED_SECONDS = 60
MEANS_SECONDS = 300
WINDOWS_SECONDS = round(WINDOWS * WINDOW_SECONDS)
UP = 'up{service!=""}'

NOW: Mapping[str, Query] = {
    "age": Query(f"time() - max {engines.by(POD)} (timestamp({UP}) and {UP} == 1)", POD),
    "targets": Query(f"count {engines.by(SERVICE)} ({UP})", SERVICE),
    "ttft_judged": Query(gateway.judged(JUDGED_SECONDS, "ttft_met"), (*SERVICE, "ttft_met")),
    "arrivals": Query(gateway.count("arrived", WINDOWS_SECONDS), SERVICE),
    "mean_uncached": Query(gateway.per("uncached_tokens", gateway.arrived(), MEANS_SECONDS), SERVICE),
    "mean_prompt": Query(gateway.per("prompt_tokens", gateway.completed(), MEANS_SECONDS), SERVICE),
    "mean_output": Query(gateway.per("generated_tokens", gateway.completed(), MEANS_SECONDS), SERVICE),
}
"""Asked once a tick."""


def over(span: int) -> Mapping[str, Query]:
    """The queries of rates over `span` seconds, and of gauges within the last three quarters of it: as old as a sample may
    be that still tells what is now (three scrape intervals)."""
    recent = RECENT * span // 4
    return {
        "running": Query(engines.gauge(engines.RUNNING, recent), POD),
        "waiting": Query(engines.gauge(engines.WAITING, recent), POD),
        "kv_use": Query(engines.share(engines.KV_USE, recent), POD),
        "queued_requests": Query(gateway.queued("queued_requests", recent), (*SERVICE, "role")),
        "queued_tokens": Query(gateway.queued("queued_tokens", recent), (*SERVICE, "role")),
        "outstanding": Query(gateway.of_engines("engine_outstanding_tokens", recent), (*SERVICE, "engine")),
        "samples": Query(f"max {engines.by(POD)} (count_over_time({UP}[{span}s]))", POD),
        "generated": Query(engines.rate(engines.GENERATED, span), POD),
        "inflow": Query(engines.slope(engines.RUNNING, span), POD),
        "step_seconds": Query(engines.mean(engines.GAP, span), POD),
        "prefills": Query(engines.rate(engines.PREFILL, span, "_count"), POD),
        "prefill_seconds": Query(engines.mean(engines.PREFILL, span), POD),
        "computed": Query(engines.new_tokens(span), POD),
        "arrived": Query(gateway.rate("arrived", span), SERVICE),
        "uncached": Query(gateway.rate("uncached_tokens", span), SERVICE),
    }


@dataclass(frozen=True)
class Readings:
    """Answers by the queries' names; what could not be answered is in `faults` with the reason, and unknown everywhere."""

    now: Mapping[str, Vector] = field(default_factory=dict)
    spans: Mapping[int, Mapping[str, Vector]] = field(default_factory=dict)
    faults: Mapping[str, str] = field(default_factory=dict)

    def value(self, name: str, *key: str) -> float | None:
        """The value of one row of a query of this moment, or unknown."""
        return self.now.get(name, {}).get(key)

    def over(self, span: int, name: str, *key: str) -> float | None:
        """The value of one row of a query over a span, or unknown."""
        return self.spans.get(span, {}).get(name, {}).get(key)

    @property
    def reached(self) -> bool:
        """Whether anything was answered at all."""
        return bool(self.now)


def span_of(interval: float | None) -> int:
    """The span that a service's rates are taken over; the shortest where its interval is unknown."""
    wanted = SAMPLES * (interval or 0)
    return next((span for span in SPANS if span >= wanted), SPANS[-1])


def read(ask: Ask, spans: set[int], executor: Executor) -> Readings:
    """Ask everything for the given spans, some at a time.

    A server that does not answer the first query is asked no further, so that a tick ends soon.
    """
    try:
        first = ask(NOW["age"])
    except Unanswered as fault:
        return Readings(faults={"age": str(fault)})
    wanted = [(None, name, query) for name, query in NOW.items() if name != "age"]
    rates = [(span, name, query) for span in sorted(spans) for name, query in over(span).items()]
    now: dict[str, Vector] = {"age": first}
    found: dict[int, dict[str, Vector]] = {span: {} for span in spans}
    faults: dict[str, str] = {}
    jobs = [(span, name, executor.submit(ask, query)) for span, name, query in [*wanted, *rates]]
    for span, name, job in jobs:
        try:
            (now if span is None else found[span])[name] = job.result()
        except Unanswered as fault:
            faults[name] = str(fault)
    return Readings(now, found, faults)

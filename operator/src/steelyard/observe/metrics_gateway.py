"""PromQL over the metrics of our gateway, summed to services: arrivals, queues, lengths, judged requests, latencies.

A gateway's series are told apart by its pod and their own labels; a gateway that two jobs scrape counts once.
"""

from steelyard.observe.metrics_engines import POD, SERVICE, by, last

PREFIX = "steelyard_gateway_"
JUDGED_OUTCOMES = "completed|failed|refused"  # cancelled and invalid requests do not count (decide/queue/judge.py)


def rate(name: str, span: int) -> str:
    """A counter of each service per second over `span` seconds."""
    return _sum(f'rate({PREFIX}{name}_total{{service!=""}}[{span}s])')


def count(name: str, span: int) -> str:
    """How far a counter of each service rose in `span` seconds."""
    return _sum(f'increase({PREFIX}{name}_total{{service!=""}}[{span}s])')


def per(name: str, of: str, span: int) -> str:
    """One counter per unit of another over `span` seconds; no value where the other stood still."""
    return f"{rate(name, span)} / {_sum(f'rate({of}[{span}s])')}"


def completed() -> str:
    """The selector of requests that were answered."""
    return f'{PREFIX}requests_total{{service!="", outcome="completed"}}'


def arrived() -> str:
    """The selector of requests that arrived."""
    return f'{PREFIX}arrived_total{{service!=""}}'


def queued(name: str, recent: int) -> str:
    """A gauge of each service and role: the newest values of the last `recent` seconds."""
    labels, newest = (*SERVICE, "role"), last(f'{PREFIX}{name}{{service!=""}}', recent)
    return f"sum {by(labels)} (max {by((*POD, 'role'))} ({newest}))"


def of_engines(name: str, recent: int) -> str:
    """A gauge of each engine, summed over the gateways: the newest values of the last `recent` seconds."""
    labels, newest = (*SERVICE, "engine"), last(f'{PREFIX}{name}{{service!=""}}', recent)
    return f"sum {by(labels)} (max {by((*POD, 'engine'))} ({newest}))"


def judged(span: int, *met: str) -> str:
    """How many requests were judged in `span` seconds, by the labels `met` (ttft_met, tpot_met)."""
    every = (*POD, "outcome", "ttft_met", "tpot_met", "length_class")
    counted = f'increase({PREFIX}requests_total{{service!="", outcome=~"{JUDGED_OUTCOMES}"}}[{span}s])'
    return f"sum {by((*SERVICE, *met))} (max {by(every)} ({counted}))"


def buckets(name: str, span: int) -> str:
    """The cumulative buckets of a histogram of each service, as rates over `span` seconds."""
    labels, every = (*SERVICE, "le"), (*POD, "le")
    return f'sum {by(labels)} (max {by(every)} (rate({PREFIX}{name}_bucket{{service!=""}}[{span}s])))'


def without_gateway(text: str) -> str:
    """Only the rows of services that no gateway of ours serves."""
    return f'({text}) unless on ({", ".join(SERVICE)}) {PREFIX}arrived_total{{service!=""}}'


def _sum(text: str) -> str:
    ranks = (*POD, "outcome", "ttft_met", "tpot_met", "length_class")
    return f"sum {by(SERVICE)} (max {by(ranks)} ({text}))"

"""What the service owes its users (objectives), and how far the operator may go to keep it (autoscaling)."""

from fractions import Fraction
from typing import Annotated, Literal

from pydantic import Field

from steelyard.api.quantities import Duration
from steelyard.api.record import Record


class Objectives(Record):
    """Latency objectives, judged per request at the gateway. A request counts as met when it meets all that are set."""

    time_to_first_token: Duration | None = None
    """TTFT: longest time from a request's arrival to its first token. Default: not judged."""
    time_per_output_token: Duration | None = None
    """TPOT: longest mean time per output token of a request, after the first. Default: not judged."""
    attainment: Annotated[float, Field(gt=0, lt=100)] = 95
    """Percent of requests that must meet the objectives, at least 1 and below 100: 95 means 95 %, and 0.95 is refused.
    Default 95."""
    window: Duration = Duration("5m")
    """Span over which attainment is counted. Default 5m."""


class Budget(Record):
    """The most the service may use."""

    accelerators: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Accelerators of all roles together; a spec whose minima pass it is refused. Default: the roles' maxima are the
    only limit."""
    cost_per_hour: Annotated[float, Field(gt=0, le=10_000_000)] | None = None
    """Cost of all accelerators per hour, in the currency of the catalogue's prices. Default: no limit."""


RatioText = Annotated[str, Field(max_length=9, pattern=r"^[1-9][0-9]{0,3}:[1-9][0-9]{0,3}$")]


def ratio(text: str) -> Fraction:
    """Read prefill:decode, such as "3:5", as a fraction."""
    prefill, decode = text.split(":")
    return Fraction(int(prefill), int(decode))


class RatioBounds(Record):
    """Bounds of prefill:decode, in accelerators."""

    min: RatioText | None = None
    """Least prefill per decode, such as "1:8". Default: no bound."""
    max: RatioText | None = None
    """Most prefill per decode, such as "4:1". Default: no bound."""


class ScheduledMinimum(Record):
    """A known peak: the fewest replicas for a while."""

    cron: Annotated[str, Field(min_length=9, max_length=128, pattern=r"^[0-9*,/ -]+$")]
    """When it begins, as five fields of cron in UTC (minute, hour, day of month, month, day of week), such as "0 8 * * 1-5"."""
    duration: Duration
    """How long it lasts, at most 168h."""
    prefill: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Fewest replicas that read prompts meanwhile."""
    decode: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Fewest replicas that write answers meanwhile."""
    aggregated: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Fewest replicas that do both meanwhile."""


class Autoscaling(Record):
    """How far the operator may change the number and the roles of replicas."""

    mode: Literal["Auto", "Recommend", "Off"] = "Auto"
    """Who sets the number of replicas. Auto: the operator, by the load and the objectives, within every bound; without a
    Prometheus it only keeps each role between min and max. Recommend: it decides and says so in status, and writes
    nothing. Off: it decides nothing. In both, `kubectl scale` or another autoscaler rules after creation. Default
    Auto."""
    budget: Budget = Budget()
    """The most the service may use."""
    ratio: RatioBounds = RatioBounds()
    """Bounds of prefill:decode, in accelerators."""
    role_change: Literal["Allowed", "Never"] = "Allowed"
    """Whether a running replica may change between prefill and decode where both pools run equal engines. Default
    Allowed."""
    standby: Annotated[int, Field(ge=0, le=100)] = 0
    """Ready replicas of each role kept beyond the need, for what comes sooner than a replica starts. They take their share of the
    load, and count in maxima, budget and cost like any other. The operator decides them by the load, so they need its
    decisions (mode Auto or Recommend, and a Prometheus) and room between min and max. Default 0."""
    schedule: Annotated[
        tuple[ScheduledMinimum, ...], Field(max_length=16, json_schema_extra={"x-kubernetes-list-type": "atomic"})
    ] = ()
    """Known peaks: minima for a while, from when they begin; replicas are started so much earlier as a start was measured to
    take. Of entries that overlap the largest counts. Afterwards the load decides; without a Prometheus nobody takes them away
    again. In modes Recommend and Off nothing is written."""

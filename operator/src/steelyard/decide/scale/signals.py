"""What the autoscaler's law may look at, and nothing else: one service at one moment, and the limits it keeps.

The operator fills `Signals` from Prometheus, the gateways and the API server; the simulator from its own world, with
the same delays. A measurement is a value or None, which says *unknown* and never zero: NaN, an empty answer, a failed
scrape and a series younger than its window are all None. Times are unix seconds, spans seconds, rates per second.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Literal

from steelyard.decide.model.latency import Polynomial

WINDOW_SECONDS = 0.25  # of `Signals.arrivals`


class Phase(StrEnum):
    """How far a replica is."""

    STARTING = "starting"  # created, not ready yet, nothing known to be wrong
    READY = "ready"
    DRAINING = "draining"  # takes nothing new and leaves
    UNSCHEDULABLE = "unschedulable"  # the scheduler finds no node for it
    FAILING = "failing"  # its containers end or cannot start, again and again


@dataclass(frozen=True, slots=True)
class StartUp:
    """How long a replica that is ready now took to become so, by phase."""

    scheduling: float  # created → a node found: scarcity, not the engine's fault
    loading: float  # → weights there (image pull and init containers)
    warming: float  # → ready


@dataclass(frozen=True, slots=True)
class Passes:
    """Prefill passes that one replica finished in the last measured span, as means: what f(n) is fitted to.

    From an engine that only tells per request, a pass is a request; its seconds then exclude waiting.
    """

    tokens: float  # new (uncached) tokens of a pass
    seconds: float
    count: float


@dataclass(frozen=True, slots=True)
class Replica:
    """One engine pod. Gauges are those of the newest scrape of this very pod (name and start time), else None."""

    name: str
    pool: str  # where it was born: prefill | decode | aggregated
    role: str  # what it does now, as its label says
    kv_group: str
    phase: Phase
    since: float
    """When the phase began. Of UNSCHEDULABLE and FAILING: when the pod was created; of STARTING too, or when it stopped
    being ready."""
    started: bool = False  # its engine has been up since it was started: if it is not ready, that is no failed start
    revision: str = ""
    words: str = ""  # the scheduler's or the container's own, for UNSCHEDULABLE and FAILING
    running: float | None = None  # sequences being served
    waiting: float | None = None  # sequences waiting inside the engine
    kv_use: float | None = None  # share of its KV capacity, 0…1
    outstanding_tokens: float | None = None  # uncached prompt tokens sent to it and not computed yet
    step_seconds: float | None = None  # mean time per output token of its own sequences over the last measured span
    passes: Passes | None = None
    prefill_rate: float | None = None  # uncached prompt tokens computed per second over the last measured span
    start: StartUp | None = None  # of a replica that is READY since its start, which somebody saw


@dataclass(frozen=True, slots=True)
class Signals:
    """One service at one tick."""

    time: float
    replicas: tuple[Replica, ...]  # every engine pod that exists, draining ones too
    asked: Mapping[str, int]  # pool → replicas that its Deployment asks for now
    sample_age: float | None = None  # seconds since the newest sample of this service; None: there is none
    scrape_interval: float | None = None  # as measured, not as configured
    arrivals: tuple[float, ...] | None = None
    """Uncached prompt tokens that arrived in each 0.25 s window, oldest first, up to 960, the last one complete just
    before `time`; summed over the gateways; without prompts that could not meet TTFT on an idle replica (more replicas
    do not help those). None where the gateways do not tell: the law then makes do with `uncached_rate`."""
    uncached_rate: float | None = None  # uncached prompt tokens arriving per second, over ≥ 15 s
    request_rate: float | None = None  # requests arriving per second, same span
    generated_rate: float | None = None  # output tokens per second, over ≥ 10 s
    decode_inflow: float | None = None  # sequences that began decoding less those that ended, per second, over ≥ 10 s
    mean_uncached: float | None = None  # uncached prompt tokens of a request; kept from the last known where idle
    mean_prompt: float | None = None  # prompt tokens of a request, cached ones too
    mean_output: float | None = None  # output tokens of a finished request
    prefill_queue: float | None = None  # requests waiting for a prefill (or aggregated) replica, gateway and engines
    prefill_queue_tokens: float | None = None  # their uncached tokens, as far as the gateways hold them
    decode_queue: float | None = None  # requests waiting for their first decode step, gateway and engines
    by_engines: bool = False  # another router sends the requests: rates are what prefill replicas finish
    ttft_met: float | None = None  # requests of the last 60 s that met TTFT …
    ttft_judged: float | None = None  # … of this many that were judged


@dataclass(frozen=True, slots=True)
class RoleLimits:
    """Bounds of one role. An unknown count or price of accelerators stops every growth that it would limit."""

    min: int
    max: int
    accelerators: int | None = 1  # of one replica; None: cannot be read
    price_per_hour: float | None = None  # of one accelerator


@dataclass(frozen=True, slots=True)
class Limits:
    """How far the law may go; `ratio_min`/`ratio_max` bound prefill : decode in accelerators."""

    roles: Mapping[str, RoleLimits]  # prefill and decode, or aggregated alone
    accelerators: float | None = None  # budget
    cost_per_hour: float | None = None  # budget
    ratio_min: Fraction | None = None
    ratio_max: Fraction | None = None
    role_change: bool = True
    standby: int = 0  # replicas of each role to have beyond the need
    mode: Literal["Auto", "Recommend", "Off"] = "Auto"


@dataclass(frozen=True, slots=True)
class Objectives:
    """What is promised. None: not judged, so it asks for nothing."""

    ttft: float | None
    tpot: float | None
    attainment: float  # share of requests, 0…1

    @property
    def allowed_loss(self) -> float:
        """eps: the share of the work, or of the requests of one minute, that may be late. Twice what the objective
        leaves: shortest first and late last lose the longest prompts, and losses come in bursts, not in every minute."""
        return min(1.0, 2 * (1 - self.attainment))


@dataclass(frozen=True, slots=True)
class Engine:
    """What a replica of one role can do as far as it is known beforehand; measurements correct the model."""

    prior: Polynomial
    max_sequences: int
    max_batch_tokens: int
    start_seconds: float  # prior of the start-up time
    guessed: bool = False  # the prior knows nothing of the model: good for a first size, not for a limit


@dataclass(frozen=True, slots=True)
class Service:
    """All that a spec says about scaling one service."""

    limits: Limits
    objectives: Objectives
    engines: Mapping[str, Engine]  # by role
    handoff_seconds: float = 0.05  # from the end of prefill to the first token out of decode, at rest

"""What the autoscaler's law answers: how many replicas of each role, by which steps, why, and what it keeps in mind.

`Memory` is handed back at the next tick. Its `learnt` part is worth keeping in status; the rest is short windows that a
new operator starts afresh from what runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from steelyard.decide.scale.signals import StartUp
from steelyard.decide.scale.windows import Kept


class LimitedBy(StrEnum):
    """What kept the decision from what the load needs."""

    NONE = "None"
    MIN = "Min"  # the load needs fewer
    MAX = "Max"
    BUDGET = "Budget"
    RATIO = "Ratio"
    METRICS_STALE = "MetricsStale"  # unknown holds
    UNKNOWN_COST = "UnknownCost"  # accelerators or price of a replica cannot be read
    UNSCHEDULABLE = "Unschedulable"  # the cluster has no room; asked again later
    START_FAILING = "StartFailing"  # new replicas do not come up


@dataclass(frozen=True, slots=True)
class Sums:
    """Weighted sums of a least-squares fit with forgetting: of products of terms, and of terms times seconds."""

    moments: tuple[float, ...] = ()
    products: tuple[float, ...] = ()
    samples: float = 0.0


@dataclass(frozen=True, slots=True)
class Learnt:
    """What has been measured about the service; kept over restarts (status.decision)."""

    beta: float = 1.0  # feedback: prefill need over what the model says
    prefill: Sums = Sums()
    decode: Sums = Sums()
    start: StartUp | None = None  # smoothed, by phase
    start_samples: int = 0
    start_until: float = 0.0  # replicas that were ready by then are in `start`


@dataclass(frozen=True, slots=True)
class Tick:
    """What one tick saw: the arrivals between scrapes where there are no exact windows, and decode's need."""

    time: float
    uncached_rate: float | None
    decode_need: float


@dataclass(frozen=True, slots=True)
class Conversion:
    """A role change that was asked for and is not finished."""

    source: str
    target: str
    since: float


@dataclass(frozen=True, slots=True)
class Queues:
    """How many prompts waited inside each ready prefill replica at one tick."""

    time: float
    waiting: Mapping[str, float]  # by pod


@dataclass(frozen=True, slots=True)
class Full:
    """Tokens per second of a prefill replica in which somebody always waits, as last measured."""

    velocity: float
    time: float


@dataclass(frozen=True, slots=True)
class Memory:
    """What the law keeps from tick to tick. A fresh one is right at any time: it resumes from what runs."""

    learnt: Learnt = Learnt()
    ticks: tuple[Tick, ...] = ()  # of the horizon, oldest first
    needs: Mapping[str, Kept] = field(default_factory=dict)  # by role, or "" for the sum
    conversions: Mapping[str, Conversion] = field(default_factory=dict)  # by pod
    no_role_change_until: float = 0.0  # after one that was not confirmed
    scarce_until: Mapping[str, float] = field(default_factory=dict)  # pool → no growth before
    grew: Mapping[str, float] = field(default_factory=dict)  # pool → when it was last asked to grow
    queues: tuple[Queues, ...] = ()  # of the last half minute, oldest first; where only engines tell of the requests
    full_since: Mapping[str, float] = field(default_factory=dict)  # pod → since when somebody waited in it at each tick
    full: Full | None = None


@dataclass(frozen=True, slots=True)
class Term:
    """One quantity that the decision looked at, in replicas; `words` says it with its numbers."""

    name: str
    replicas: float
    words: str


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """A replica that is given up, and why, in the cluster's words."""

    pod: str
    words: str


@dataclass(frozen=True, slots=True)
class Decision:
    """One tick's answer. Order of carrying out: relabel, then mark `remove` as first to go, then write `pools`."""

    desired: Mapping[str, int]  # role → replicas
    pools: Mapping[str, int]  # pool → replicas that its Deployment shall ask for
    relabel: tuple[tuple[str, str], ...]  # (pod, new role), in order
    remove: tuple[str, ...]  # pods to go, first first; those of each pool make up what `pools` takes from it
    withdrawn: tuple[Withdrawal, ...]  # those of `remove` that the cluster could not start
    terms: tuple[Term, ...]
    ruled: str  # name of the term that set the total
    limited_by: LimitedBy
    act: bool  # False: told, not done (Recommend, Off)
    slots: int | None
    """The sequences that the gateways should let one decode replica hold (their `decodeSlots`); None: unknown, leave it. A
    replica past it misses TPOT for all of them, and it changes with the contexts that requests have."""
    memory: Memory

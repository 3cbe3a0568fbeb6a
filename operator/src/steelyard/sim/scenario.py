"""Everything that is fixed before a run: the service, its surroundings, and what will go wrong."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from steelyard.decide.queue.dispatch import Order
from steelyard.decide.queue.judge import Objectives
from steelyard.sim.engine import Engine

PREFILL, DECODE, AGGREGATED = "prefill", "decode", "aggregated"


class Routing(StrEnum):
    """Who sends requests to replicas."""

    GATEWAY = "gateway"  # Steelyard's queue: late binding, order, late-last
    ROUND_ROBIN = "round-robin"
    LEAST_LOADED = "least-loaded"  # fewest outstanding prompt tokens; fewest KV tokens for decode
    WSPT = "wspt"  # Dynamo's: as least loaded, behind a queue that serves the shortest prompt first


@dataclass(frozen=True, slots=True)
class Failure:
    """A replica of `role` dies at `at` seconds; which one is drawn by the scenario's seed."""

    at: float
    role: str


@dataclass(frozen=True, slots=True)
class Scenario:
    """A service and its world. Times in seconds. Raises ValueError, naming the field, where it makes no sense."""

    engine: Engine
    objectives: Objectives
    initial: Mapping[str, int]
    """Ready replicas at the start, by role: prefill and decode, or aggregated."""
    engines: Mapping[str, Engine] = field(default_factory=dict)
    """Engines of pools that differ from `engine`."""
    routing: Routing = Routing.GATEWAY
    order: Order = Order.SHORTEST_FIRST
    gateways: int = 1
    handoff_seconds: float = 0.05
    decode_slots: int | None = None
    """Sequences that the gateway lets one decode replica hold; None: as many as keep TPOT, at the mean context so far."""
    estimate_noise: float = 0.0
    """Standard deviation of the logarithm of (estimated / true prompt tokens)."""
    client_timeout_seconds: float | None = None
    """After how long a client without its whole answer gives up, and everything for it stops; None: never."""
    prefix_cache_tokens: int = 0
    prefix_block_tokens: int = 512
    capacity: int | None = None
    """The most replicas that the cluster can hold, starting and draining ones included."""
    startup_seconds: float = 60.0
    startup_spread: float = 0.0
    """Standard deviation of the logarithm of a start-up time."""
    role_change_seconds: float = 1.0
    scrape_seconds: float = 5.0
    scrape_age_seconds: float = 1.0
    """How old the newest sample is when a tick looks at it."""
    tick_seconds: float = 5.0
    stale: tuple[tuple[float, float], ...] = ()
    """Spans in which no metrics reach the policy."""
    failures: tuple[Failure, ...] = ()
    accelerators: Mapping[str, int] = field(default_factory=dict)
    """Accelerators of one replica by role; 1 where not named."""
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot run."""
        roles = {role for role, count in self.initial.items() if count > 0}
        if roles not in ({PREFILL, DECODE}, {AGGREGATED}):
            found = ", ".join(sorted(roles)) or "none"
            raise ValueError(f"initial has replicas of {found}; it needs prefill and decode, or aggregated alone")
        if self.capacity is not None and sum(self.initial.values()) > self.capacity:
            raise ValueError(f"initial has {sum(self.initial.values())} replicas; the capacity is {self.capacity}")
        for name in ("scrape_seconds", "tick_seconds"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be above 0")
        if self.startup_seconds < 0 or self.role_change_seconds < 0:
            raise ValueError("startup_seconds and role_change_seconds must not be negative")
        if self.client_timeout_seconds is not None and self.client_timeout_seconds <= 0:
            raise ValueError(f"client_timeout_seconds is {self.client_timeout_seconds}; it must be above 0")
        if self.gateways < 1:
            raise ValueError(f"gateways is {self.gateways}; at least one is needed")

    @property
    def aggregated(self) -> bool:
        """Whether one role does both."""
        return self.initial.get(AGGREGATED, 0) > 0

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles that this service has."""
        return (AGGREGATED,) if self.aggregated else (PREFILL, DECODE)

    def engine_of(self, pool: str) -> Engine:
        """The engine of a pool's replicas."""
        return self.engines.get(pool, self.engine)

    @property
    def longest(self) -> int:
        """Tokens of the longest request, prompt and answer, that every replica can hold."""
        return min(self.engine_of(role).kv_tokens for role in self.roles) - 1

    @property
    def ttft_budget(self) -> float | None:
        """Seconds from arrival to the end of prefill that still meet TTFT; None without an objective."""
        objective = self.objectives.ttft_seconds
        return None if objective is None else max(0.0, objective - (0.0 if self.aggregated else self.handoff_seconds))

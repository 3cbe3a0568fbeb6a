"""Services, replicas and signals for the autoscaler's tests, and a fluid world that closes the loop.

`World` is deterministic and knows no requests: prompt tokens arrive as a rate and are served by ready prefill
replicas, sequences flow through decode. It is enough to see whether sizes converge; fidelity is the simulator's business.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from steelyard.decide.model.latency import Polynomial
from steelyard.decide.scale.decision import Decision, Memory
from steelyard.decide.scale.law import decide
from steelyard.decide.scale.signals import (
    WINDOW_SECONDS,
    Engine,
    Limits,
    Objectives,
    Phase,
    Replica,
    RoleLimits,
    Service,
    Signals,
    StartUp,
)

# v = 0.9 · 8192/(0.0165 + 8192·8e-5) ≈ 10,973 tokens/s; R(1000) = 180 of 200 sequences.
PRIOR = Polynomial(prefill=(0.0165, 8e-5, 0.0), decode=(0.012, 0.015, 0.0, 1e-4), kv_tokens=500_000)
ENGINE = Engine(PRIOR, max_sequences=200, max_batch_tokens=8192, start_seconds=60.0)
NOW = 1_000_000.0


def service(
    *,
    prefill: tuple[int, int] = (1, 30),
    decode: tuple[int, int] = (1, 30),
    attainment: float = 0.95,
    ttft: float | None = 2.0,
    tpot: float | None = 0.05,
    engine: Engine = ENGINE,
    role_limits: Mapping[str, Any] | None = None,
    **limits: Any,
) -> Service:
    """A disaggregated service; `limits` are fields of `Limits`, `role_limits` further fields of every role's limits."""
    more = dict(role_limits or {})
    roles = {"prefill": RoleLimits(*prefill, **more), "decode": RoleLimits(*decode, **more)}
    return Service(Limits(roles, **limits), Objectives(ttft, tpot, attainment), {"prefill": engine, "decode": engine})


def aggregated(bounds: tuple[int, int] = (1, 30), **limits: Any) -> Service:
    """A service with one role."""
    return Service(
        Limits({"aggregated": RoleLimits(*bounds)}, **limits), Objectives(2.0, 0.05, 0.95), {"aggregated": ENGINE}
    )


def replica(name: str, role: str, phase: Phase = Phase.READY, **fields: Any) -> Replica:
    """One replica, idle unless told otherwise. Of a starting one, `since` is now."""
    given = {"pool": role, "kv_group": "g", "since": NOW - 1000 if phase is Phase.READY else NOW}
    if phase is Phase.READY:
        given |= {"running": 0.0, "waiting": 0.0, "kv_use": 0.0, "outstanding_tokens": 0.0}
    return Replica(name=name, role=role, phase=phase, **{**given, **fields})


def fleet(prefill: int, decode: int, **fields: Any) -> tuple[Replica, ...]:
    """Ready replicas; `fields` go to the decoding ones."""
    return (
        *(replica(f"p{i}", "prefill") for i in range(prefill)),
        *(replica(f"d{i}", "decode", **fields) for i in range(decode)),
    )


def signals(replicas: tuple[Replica, ...], *, rate: float = 0.0, at: float = NOW, **fields: Any) -> Signals:
    """A moment at which everything is known; `rate` uncached tokens per second arrived evenly for four minutes."""
    asked: dict[str, int] = {}
    for one in replicas:
        asked[one.pool] = asked.get(one.pool, 0) + (one.phase is not Phase.DRAINING)
    given: dict[str, Any] = {
        "asked": asked,
        "sample_age": 2.0,
        "scrape_interval": 5.0,
        "arrivals": (rate * WINDOW_SECONDS,) * 960,
        "uncached_rate": rate,
        "request_rate": rate / 1000,
        "generated_rate": 0.0,
        "decode_inflow": 0.0,
        "mean_uncached": 1000.0,
        "mean_prompt": 1000.0,
        "mean_output": 200.0,
        "prefill_queue": 0.0,
        "prefill_queue_tokens": 0.0,
        "decode_queue": 0.0,
        "ttft_met": 0.0,
        "ttft_judged": 0.0,
    }
    return Signals(time=at, replicas=replicas, **{**given, **fields})


def total(decision: Decision) -> int:
    """Replicas that all pools ask for."""
    return sum(decision.pools.values())


@dataclass
class World:
    """Load in, sizes out. `load(t)` gives (uncached tokens/s, sequences/s) at t seconds."""

    spec: Service
    load: Callable[[float], tuple[float, float]]
    prefill: int
    decode: int
    start_seconds: float = 60.0
    output_tokens: float = 200.0
    memory: Memory = field(default_factory=Memory)

    def __post_init__(self) -> None:
        self.clock = 0.0
        self.made = 0
        self.pods: dict[str, Replica] = {}
        self.arrived: list[float] = [0.0] * 960
        self.backlog = 0.0  # uncached tokens
        self.running = 0.0  # sequences
        self.lost = self.work = 0.0
        self.sizes: list[tuple[float, int, int]] = []
        self.decisions: list[Decision] = []
        for role, number in (("prefill", self.prefill), ("decode", self.decode)):
            for _ in range(number):
                self._make(role, Phase.READY)

    def run(self, seconds: float, tick: float = 5.0) -> World:
        """Go on for that long, deciding and acting at every tick."""
        end = self.clock + seconds
        while self.clock < end - 1e-9:
            for _ in range(round(tick / WINDOW_SECONDS)):
                self._flow()
            self._start()
            self._act(decide(self.spec, self.signals(), self.memory))
        return self

    def count(self, role: str) -> int:
        """Replicas of a role that are not draining."""
        return sum(p.role == role for p in self.pods.values())

    def signals(self) -> Signals:
        """What monitoring would tell now."""
        tokens, sequences = self.load(self.clock)
        decoding = [name for name, p in self.pods.items() if p.role == "decode" and p.phase is Phase.READY]
        share = self.running / max(1, len(decoding))
        pods = tuple(
            replace(p, running=share, kv_use=min(1.0, share * 1100 / PRIOR.kv_tokens)) if name in decoding else p
            for name, p in self.pods.items()
        )
        return signals(
            pods,
            at=NOW + self.clock,
            rate=sum(self.arrived[-60:]) / 15,
            arrivals=tuple(self.arrived[-960:]),
            request_rate=sequences,
            generated_rate=self.running / 0.04,
            prefill_queue_tokens=self.backlog,
            mean_uncached=tokens / sequences if sequences else 1000.0,
        )

    def _flow(self) -> None:
        tokens, sequences = self.load(self.clock)
        ready = sum(p.role == "prefill" and p.phase is Phase.READY for p in self.pods.values())
        rate = ready * 10_973.0
        arrived = tokens * WINDOW_SECONDS
        self.arrived.append(arrived)
        self.work += arrived
        self.backlog = max(0.0, self.backlog + arrived - rate * WINDOW_SECONDS)
        over = max(0.0, self.backlog - rate * 1.5)
        self.lost, self.backlog = self.lost + over, self.backlog - over
        stay = self.output_tokens * 0.04
        self.running += WINDOW_SECONDS * (sequences - self.running / stay)
        self.clock += WINDOW_SECONDS

    def _start(self) -> None:
        for name, pod in self.pods.items():
            age = NOW + self.clock - pod.since
            if pod.phase is Phase.STARTING and age >= self.start_seconds - 1e-9:
                self.pods[name] = replace(
                    replica(name, pod.role), since=NOW + self.clock, pool=pod.pool, start=StartUp(0.0, 0.0, age)
                )

    def _act(self, decision: Decision) -> None:
        self.memory = decision.memory
        self.decisions.append(decision)
        if decision.act:
            for name, role in decision.relabel:
                self.pods[name] = replace(self.pods[name], role=role)
            for name in decision.remove:
                del self.pods[name]
            for pool, asked in decision.pools.items():
                for _ in range(asked - sum(p.pool == pool for p in self.pods.values())):
                    self._make(pool, Phase.STARTING)
        self.sizes.append((self.clock, self.count("prefill"), self.count("decode")))

    def _make(self, pool: str, phase: Phase) -> None:
        name = f"{pool}-{self.made}"
        self.made += 1
        self.pods[name] = replica(name, pool, phase, since=NOW + self.clock if phase is Phase.STARTING else NOW - 1000)

"""Runs in Dynamo's own environment: `python -m bench.evidence.inside` reads what to play from the input, a JSON line a run out.

Imports the law and Dynamo, nothing else of ours. The law sees what Dynamo's hook tells (workers, sequences, KV, traffic of
the last tick) and the quarter-second arrival windows that a gateway would have, never what has not arrived yet.
"""

import json
import sys
from bisect import bisect_right
from typing import Any

from dynamo._core import (  # type: ignore[import-not-found]
    KvRouterConfig,
    MockEngineArgs,
    run_mocker_trace_replay,
)
from steelyard.decide.model.latency import Polynomial
from steelyard.decide.scale.decision import Memory
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
)

from bench.evidence.engines import DYNAMO

TTFT, TPOT = 0.5, 0.05
TICK, STARTUP, RATE_SECONDS, SPAN_TICKS = 5.0, 60.0, 15.0, 4
MOST_WINDOWS = 960
BUDGET = 32
ROLES = ("prefill", "decode")


def service(attainment: float) -> Service:
    """What the law is told: Dynamo's published constants as the prior."""
    prior = Polynomial(DYNAMO.prefill, DYNAMO.decode, DYNAMO.kv_tokens)
    engine = Engine(prior, DYNAMO.max_sequences, DYNAMO.batch_tokens, STARTUP)
    limits = Limits({role: RoleLimits(1, BUDGET) for role in ROLES}, accelerators=BUDGET, role_change=False)
    return Service(limits, Objectives(TTFT, TPOT, attainment), dict.fromkeys(ROLES, engine), handoff_seconds=0.0)


class Scaler:
    """The hook: `on_tick` is called by the replay, and says how many workers there shall be."""

    def __init__(self, attainment: float, arrivals: list[tuple[float, int]]) -> None:
        """`arrivals` are (seconds, prompt tokens), in order; only those before a tick are ever looked at."""
        self._service, self._memory = service(attainment), Memory()
        self._at = [at for at, _ in arrivals]
        self._tokens = [tokens for _, tokens in arrivals]
        self._asked: dict[str, int] | None = None
        self._seen: dict[int, tuple[float, Phase]] = {}
        self._gauges: dict[int, dict[str, Any]] = {}
        self._running: list[float] = []
        self._traffic: list[dict[str, Any]] = []

    def initial_tick_ms(self) -> float:
        """When to be called first."""
        return TICK * 1000

    def on_tick(self, told: dict[str, Any]) -> dict[str, Any]:
        """Decide one tick."""
        now = told["now_ms"] / 1000
        if self._asked is None:
            self._asked = {role: told[f"non_draining_{role}_count"] for role in ROLES}
        decision = decide(self._service, self._signals(now, told), self._memory)
        self._memory = decision.memory
        self._asked = dict(decision.pools)
        target = {
            f"target_{r}": self._asked[r] if self._asked[r] != told[f"non_draining_{r}_count"] else None for r in ROLES
        }
        return {**target, "next_tick_ms": (now + TICK) * 1000}

    def _signals(self, now: float, told: dict[str, Any]) -> Signals:
        replicas = [r for role in ROLES for r in self._replicas(now, role, told)]
        self._running.append(sum(r.running or 0.0 for r in replicas if r.role == "decode"))
        self._traffic.append(told["traffic"])
        recent = self._traffic[-SPAN_TICKS:]
        seconds, count = len(recent) * TICK, sum(t["num_req"] for t in recent)
        answers = sum(t["num_req"] * t["avg_osl"] for t in recent)
        means = [t for t in self._traffic[-60:] if t["num_req"]]
        served = sum(t["num_req"] for t in means)
        windows = self._windows(now)
        lately = windows[-round(RATE_SECONDS / WINDOW_SECONDS) :]
        inflow = self._running[-1] - self._running[max(0, len(self._running) - 1 - SPAN_TICKS)]
        mean_prompt = sum(t["num_req"] * t["avg_isl"] for t in means) / served if served else None
        return Signals(
            time=now,
            replicas=tuple(replicas),
            asked=self._asked or {},
            sample_age=0.0,
            scrape_interval=TICK,
            arrivals=windows,
            uncached_rate=sum(lately) / RATE_SECONDS,
            request_rate=count / seconds,
            generated_rate=answers / seconds,
            decode_inflow=inflow / (min(len(self._running) - 1, SPAN_TICKS) * TICK) if len(self._running) > 1 else 0.0,
            mean_uncached=mean_prompt,
            mean_prompt=mean_prompt,
            mean_output=sum(t["num_req"] * t["avg_osl"] for t in means) / served if served else None,
            decode_queue=float(sum(g.get("num_queued_decode", 0) for g in self._gauges.values())),
        )

    def _replicas(self, now: float, role: str, told: dict[str, Any]) -> list[Replica]:
        found = []
        for snapshot in told[f"{role}_fpm_snapshots"]:
            self._gauges[_key(role, snapshot["worker_id"])] = snapshot
        for name, phase in (("active", Phase.READY), ("starting", Phase.STARTING), ("draining", Phase.DRAINING)):
            for number in told[f"{name}_{role}_ids"]:
                key = _key(role, number)
                since, before = self._seen.get(key, (now, phase))
                self._seen[key] = (since if before is phase else now, phase)
                gauges = self._gauges.get(key, {})
                running = (
                    gauges.get("num_decode_requests", 0) if role == "decode" else gauges.get("num_prefill_requests", 0)
                )
                kv = (
                    gauges.get("sum_decode_kv_tokens", 0) + gauges.get("sum_queued_decode_kv_tokens", 0)
                ) / DYNAMO.kv_tokens
                ready = phase is Phase.READY
                found.append(
                    Replica(f"{role}-{number}", role, role, "", phase, self._seen[key][0],
                            running=float(running) if ready else None,
                            kv_use=min(1.0, kv) if ready else None)
                )  # fmt: skip
        return found

    def _windows(self, now: float) -> tuple[float, ...]:
        count = min(MOST_WINDOWS, int(now / WINDOW_SECONDS))
        first = now - count * WINDOW_SECONDS
        table = [0.0] * count
        longest = DYNAMO.prompt_seconds
        for index in range(bisect_right(self._at, first), bisect_right(self._at, now)):
            tokens = self._tokens[index]
            place = int((self._at[index] - first) / WINDOW_SECONDS)
            if place < count and longest(tokens) <= TTFT:
                table[place] += tokens
        return tuple(table)


def _key(role: str, number: int) -> int:
    return 2 * number + (role == "decode")


def play(asked: dict[str, Any], run: dict[str, Any]) -> dict[str, Any]:
    """One run of the replay; `law` is the attainment asked for, or None for a static size."""
    with open(asked["trace"]) as file:
        rows = [json.loads(line) for line in file]
    arrivals = [(row["timestamp"] / 1000 / asked["speed"], row["input_length"]) for row in rows]

    def engine(role: str) -> Any:
        return MockEngineArgs(block_size=64, num_gpu_blocks=8192, worker_type=role, startup_time=STARTUP)

    report = run_mocker_trace_replay(
        [asked["trace"]],
        prefill_engine_args=engine("prefill"),
        decode_engine_args=engine("decode"),
        router_config=KvRouterConfig(router_queue_threshold=0.5, router_queue_policy="wspt"),
        num_prefill_workers=run["prefill"],
        num_decode_workers=run["decode"],
        replay_mode="offline",
        router_mode="kv_router",
        arrival_speedup_ratio=asked["speed"],
        trace_format="mooncake",
        sla_ttft_ms=TTFT * 1000,
        sla_itl_ms=TPOT * 1000,
        scaling_policy=Scaler(run["law"], arrivals) if run["law"] else None,
    )
    policy = f"our law, {run['law']:.1%} asked for" if run["law"] else f"static {run['prefill']}P{run['decode']}D"
    return {
        "policy": policy,
        "attainment": round(report["goodput_completed_requests"] / report["num_requests"], 4),
        "hours": round(report["gpu_hours"], 3),
        "requests": report["num_requests"],
        "ttft_p99_ms": round(report["p99_ttft_ms"], 1),
    }


def main() -> None:
    """Play all of it."""
    asked = json.load(sys.stdin)
    for run in asked["runs"]:
        print(json.dumps(play(asked, run)), flush=True)


if __name__ == "__main__":
    main()

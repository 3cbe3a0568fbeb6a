"""CPU time of one decision of the autoscaler: `python -m bench.law` in `operator/`.

Each row is one fleet under bursty load, decided tick after tick with arrivals that move on: milliseconds of CPU a tick, mean
and 99th percentile. With --profile the costliest functions of the last row follow.
"""

import argparse
import cProfile
import pstats
import random
import time
from dataclasses import replace

from steelyard.decide.model.latency import Polynomial
from steelyard.decide.scale.decision import Memory
from steelyard.decide.scale.law import decide
from steelyard.decide.scale.signals import (
    Engine,
    Limits,
    Objectives,
    Passes,
    Phase,
    Replica,
    RoleLimits,
    Service,
    Signals,
)

PRIOR = Polynomial((0.0165, 8e-5, 5e-10), (0.012, 0.015, 0.0, 1e-4), 500_000)
ROLES = ("prefill", "decode")
TICKS = 200


def service(start_seconds: float) -> Service:
    """A service without a budget that binds."""
    engine = Engine(PRIOR, 200, 8192, start_seconds)
    return Service(
        Limits({role: RoleLimits(1, 1000) for role in ROLES}), Objectives(2.0, 0.05, 0.95), dict.fromkeys(ROLES, engine)
    )


def ticks(replicas: int, busy: float, rng: random.Random) -> list[Signals]:
    """A service of that many replicas, half of them decoding; `busy` is the share of windows in which tokens arrive."""
    half = replicas // 2
    pods = tuple(
        Replica(
            f"r{i}",
            ROLES[i >= half],
            ROLES[i >= half],
            "g",
            Phase.READY,
            since=0.0,
            running=rng.uniform(20, 120),
            waiting=0.0,
            kv_use=rng.uniform(0.1, 0.5),
            outstanding_tokens=rng.uniform(0, 2000),
            step_seconds=0.03,
            passes=Passes(1500.0, 0.14, 30.0),
        )
        for i in range(replicas)
    )
    rate = half * 7000.0
    arrivals = [
        rng.gammavariate(0.5, 2) * rate * 0.25 / busy if rng.random() < busy else 0.0 for _ in range(TICKS * 20 + 960)
    ]
    base = Signals(
        time=0.0,
        replicas=pods,
        asked=dict.fromkeys(ROLES, half),
        sample_age=2.0,
        scrape_interval=5.0,
        uncached_rate=rate,
        request_rate=rate / 1000,
        generated_rate=half * 2000.0,
        decode_inflow=0.5,
        mean_uncached=1000.0,
        mean_prompt=1200.0,
        mean_output=200.0,
        prefill_queue=3.0,
        prefill_queue_tokens=3000.0,
        decode_queue=1.0,
        ttft_met=900.0,
        ttft_judged=1000.0,
    )
    return [
        replace(base, time=5.0 * tick, arrivals=tuple(arrivals[20 * tick : 20 * tick + 960])) for tick in range(TICKS)
    ]


def measure(asked: Service, seen: list[Signals]) -> list[float]:
    """CPU seconds of each decision."""
    memory, spent = Memory(), []
    for signals in seen:
        before = time.process_time()
        memory = decide(asked, signals, memory).memory
        spent.append(time.process_time() - before)
    return spent


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", action="store_true")
    wanted = parser.parse_args()
    rng = random.Random(1)
    print(f"{'replicas':>8} {'busy windows':>12} {'start-up s':>10} {'mean ms':>8} {'p99 ms':>8}")
    for replicas, busy, start in ((2, 0.1, 60.0), (8, 1.0, 60.0), (20, 1.0, 60.0), (20, 1.0, 180.0), (200, 1.0, 180.0)):
        asked, seen = service(start), ticks(replicas, busy, rng)
        spent = sorted(measure(asked, seen))
        mean, late = sum(spent) / len(spent) * 1e3, spent[int(0.99 * len(spent))] * 1e3
        print(f"{replicas:>8} {busy:>12.0%} {start:>10.0f} {mean:>8.2f} {late:>8.2f}")
    if wanted.profile:
        profile = cProfile.Profile()
        profile.runcall(measure, asked, seen)
        pstats.Stats(profile).sort_stats("tottime").print_stats(15)


if __name__ == "__main__":
    main()

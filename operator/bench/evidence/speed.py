"""How fast the simulator is, in CPU time, and whether its memory stays flat.

Azure's conversation trace through eight replicas behind the gateway, at the rate it was recorded and faster.
"""

import resource
import time
import tracemalloc
from itertools import count
from typing import Any

from steelyard.decide.queue.judge import Objectives
from steelyard.sim.requests import Arrival
from steelyard.sim.run import simulate
from steelyard.sim.scenario import DECODE, PREFILL, Routing, Scenario
from steelyard.sim.synthetic import repeated

from bench.evidence import data
from bench.evidence.engines import CLASS_32B

LEAST_PER_SECOND = 5000.0


def scenario(routing: Routing = Routing.GATEWAY) -> Scenario:
    """Three replicas that prefill and five that decode."""
    return Scenario(
        engine=CLASS_32B,
        objectives=Objectives(ttft_seconds=2.0, tpot_seconds=0.05),
        initial={PREFILL: 3, DECODE: 5},
        routing=routing,
    )


def measure() -> dict[str, Any]:
    """Time each speed-up once; then three hours of trace for memory."""
    rows = []
    for speed in (1, 2, 4):
        arrivals = data.azure_conversation(speed)
        begun = time.process_time()
        result = simulate(scenario(), arrivals)
        seconds = time.process_time() - begun
        rows.append({"speed": speed, "requests_per_cpu_second": round(len(arrivals) / seconds),
                     "attainment": round(result.attainment, 4)})  # fmt: skip
    worst = min(float(row["requests_per_cpu_second"]) for row in rows)
    return {"name": "speed", "ok": worst >= LEAST_PER_SECOND, "worst": worst, "limit": LEAST_PER_SECOND, "rows": rows,
            "memory_growth_bytes_per_request": memory_growth(), "peak_rss_mib": _peak_mib()}  # fmt: skip


def memory_growth(hours: int = 2) -> float:
    """Bytes by which the simulator's memory grows with each request, between half of a long trace and its end."""
    trace = data.azure_conversation(2)[:4000]
    seconds = hours * 3600
    marks: list[tuple[int, int]] = []
    counter = count(1)

    def progress(arrival: Arrival) -> None:
        number = next(counter)
        if number % 2000 == 0:
            marks.append((number, tracemalloc.get_traced_memory()[0]))

    tracemalloc.start()
    try:
        simulate(scenario(), repeated(trace, seconds), progress=progress)
    finally:
        tracemalloc.stop()
    (first, before), (last, after) = marks[len(marks) // 2], marks[-1]
    return round((after - before) / (last - first), 2)


def _peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

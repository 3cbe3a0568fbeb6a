"""An open-loop load generator that accounts for every request.

    result = run_load(Spec(Target(url, "smollm2"), synthetic(Shape(rate=5), Lengths(200, 50), 30, seed=1)))
    assert not result.broken, result.explain()

Data's way: arrivals or traces → `plan` (who leaves, who reads slowly) → processes (`running`, `worker`) → `drive` (the moments)
→ `exchange` on `connections`, reading `answers` → `records` → `summary`, `report`.
"""

from e2e.load.arrivals import Arrival, Lengths, Pattern, Schedule, Shape, synthetic
from e2e.load.errors import LoadError
from e2e.load.records import Kind, Outcome, Record
from e2e.load.running import Result, Running, run_load, start_load
from e2e.load.spec import Bounds, Connections, Endpoint, Habits, Objectives, Spec, Target
from e2e.load.summary import Summary, summarise

__all__ = [
    "Arrival",
    "Bounds",
    "Connections",
    "Endpoint",
    "Habits",
    "Kind",
    "Lengths",
    "LoadError",
    "Objectives",
    "Outcome",
    "Pattern",
    "Record",
    "Result",
    "Running",
    "Schedule",
    "Shape",
    "Spec",
    "Summary",
    "Target",
    "run_load",
    "start_load",
    "summarise",
    "synthetic",
]

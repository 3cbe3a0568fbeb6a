"""The law on the five traces with starts of 10, 60, 180 and 600 s, three draws each: attainment, accelerator-hours, and these
over the oracle's with the same start at the same attainment.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from bench.evidence import oracle, parallel
from bench.evidence.playing import hours, lowest, play
from bench.evidence.rivals import LAW
from bench.evidence.settings import TRACES, Setting

STARTS = (10.0, 60.0, 180.0, 600.0)
SEEDS = (0, 1, 2)


def compare(
    traces: Sequence[Setting] = TRACES, starts: Sequence[float] = STARTS, seeds: Sequence[int] = SEEDS
) -> dict[str, Any]:
    """One row a trace and start, whatever it is."""
    calls = [partial(row, replace(trace, startup=seconds), seeds) for trace in traces for seconds in starts]
    rows = parallel.each(calls)
    return {"name": "startups", "ok": True, "worst": min(row["attainment"] for row in rows), "rows": rows}


def row(setting: Setting, seeds: Sequence[int]) -> dict[str, Any]:
    """Means of the draws, and what is worst of them."""
    runs = [play(setting, LAW, seed=seed) for seed in seeds]
    least = sum(oracle.bound(setting, run["attainment"], seed) for run, seed in zip(runs, seeds, strict=True))
    turned = [run["role_changes_per_minute"] for run in runs]
    return {
        "trace": setting.name,
        "startup": setting.startup,
        "attainment": round(sum(run["attainment"] for run in runs) / len(runs), 4),
        "worst_draw": round(lowest(runs), 4),
        "accelerator_hours": round(hours(runs) / len(runs), 3),
        "over_oracle": round(hours(runs) / least, 2),
        "role_changes_per_minute": round(sum(turned) / len(turned), 2),
        "worst_wait": round(max(run["worst_wait"] for run in runs), 1),
    }

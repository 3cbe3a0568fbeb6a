"""One policy on one load behind one router, as a row of figures."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from steelyard.sim.policies.choose import choose
from steelyard.sim.run import Result
from steelyard.sim.scenario import Routing

from bench.evidence.settings import BUDGET, Setting

Row = dict[str, Any]


def played(setting: Setting, policy: str, *, router: Routing = Routing.GATEWAY, seed: int = 0) -> Result:
    """Run it. Policies are written as for `steelyard simulate`: `ours`, `static=5:1`, `hpa-queue,target=4,window=120`."""
    scenario = setting.scenario(seed, routing=router)
    chosen = choose(policy, setting.engine, setting.told(scenario, BUDGET))
    if chosen.initial is not None:
        scenario = setting.scenario(seed, routing=router, initial=chosen.initial)
    return setting.run(scenario, chosen.make(), seed)


def row(load: str, policy: str, result: Result) -> Row:
    """Its figures: shares, accelerator-hours, seconds; `quarters` are attainments from the shortest prompts to the longest."""
    return {
        "load": load,
        "policy": policy,
        "attainment": result.attainment,
        "accelerator_hours": result.accelerator_hours,
        "role_changes_per_minute": result.role_changes_per_minute,
        "worst_wait": result.record.worst_wait,
        "quarters": [part.share.value or 0.0 for part in result.record.quartiles()],
    }


def play(setting: Setting, policy: str, *, router: Routing = Routing.GATEWAY, seed: int = 0) -> Row:
    """Run it, and keep its row only."""
    return row(setting.name, policy, played(setting, policy, router=router, seed=seed))


def name_of(policy: str) -> str:
    """A policy's name, without its setting: `static` of `static=5:1`, `hpa-queue` of `hpa-queue,target=4`."""
    return re.split("[,=]", policy, maxsplit=1)[0]


def lowest(rows: Sequence[Row]) -> float:
    """The lowest attainment."""
    return min(float(row["attainment"]) for row in rows)


def hours(rows: Sequence[Row]) -> float:
    """Accelerator-hours in all."""
    return sum(float(row["accelerator_hours"]) for row in rows)


def pair(row: Row) -> list[float]:
    """Attainment and hours, as they are kept."""
    return [round(row["attainment"], 4), round(row["accelerator_hours"], 3)]


def by_load(rows: Sequence[Row]) -> Mapping[str, list[Row]]:
    """Rows of each load, in order."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["load"], []).append(row)
    return found

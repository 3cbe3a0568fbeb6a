"""What a default is worth: the law and its rivals, each with one setting, under other starts, routers and loads.

Every rival gets the best single of its settings, found at 60 s starts behind our gateway on all five traces (`frontier`); the law
has none. Then, without tuning again:

    starts     10, 60, 180 and 600 s, three draws of every trace
    routers    least loaded, round robin and Dynamo's queue, at 60 s
    holdout    nine loads on which neither was tuned: the law, and the rival whose one setting is the cheapest that suffices

`policies` tunes them behind each router, on one trace at a time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from steelyard.sim.scenario import Routing

from bench.evidence import holdout, kept, oracle, parallel, rivals, standing, startups
from bench.evidence.playing import Row, hours, lowest, name_of, play
from bench.evidence.settings import TRACES, Setting

OTHERS = tuple(router for router in Routing if router is not Routing.GATEWAY)

Policies = Mapping[str, str]  # by name, as `steelyard simulate` writes them


def defaults(figures: kept.Figures) -> Policies:
    """The law, and each rival at the setting that `frontier` found. Raises ValueError where that was not run and kept."""
    if "frontier" not in figures:
        raise ValueError("robustness needs the settings that frontier finds: make evidence ONLY=frontier ARGS=--write")
    found = {name_of(row["setting"]): row["setting"] for row in figures["frontier"]["rows"] if "setting" in row}
    return {rivals.LAW: rivals.LAW} | found


def nearest(figures: kept.Figures) -> str:
    """The rival that comes nearest: its single setting is the cheapest of those that reach what is wanted, or fails least."""
    rows = [row for row in figures["frontier"]["rows"] if "setting" in row]
    best = min(rows, key=lambda row: (-min(rivals.WANTED, row["lowest"]), row["accelerator_hours"]))
    return name_of(best["setting"])


def starts(
    policies: Policies, traces: Sequence[Setting] = TRACES, seconds: Sequence[float] = startups.STARTS
) -> list[Row]:
    """Each policy at each start: the first draw of every trace in full, and of each (`startups.SEEDS`) the lowest attainment,
    hours in all and over the oracle's."""

    def row(start: float, name: str) -> Row:
        loads = [replace(trace, startup=start) for trace in traces]
        draws = [[play(load, policies[name], seed=seed) for load in loads] for seed in startups.SEEDS]
        told = [_draw(runs, loads, seed) for seed, runs in zip(startups.SEEDS, draws, strict=True)]
        return {"start": start, "policy": name, **standing.figures(draws[0], loads), "draws": told}

    return parallel.each([partial(row, start, name) for start in seconds for name in policies])


def _draw(runs: Sequence[Row], loads: Sequence[Setting], seed: int) -> Row:
    least = sum(oracle.bound(load, run["attainment"], seed) for load, run in zip(loads, runs, strict=True))
    spent = hours(runs)
    return {
        "lowest": round(lowest(runs), 4),
        "accelerator_hours": round(spent, 3),
        "over_oracle": round(spent / least, 2),
    }


def routers(policies: Policies, traces: Sequence[Setting] = TRACES) -> list[Row]:
    """Each policy behind each router but ours."""

    def row(router: Routing, name: str) -> Row:
        return {"router": router.value, **_row(name, policies[name], traces, router)}

    return parallel.each([partial(row, router, name) for router in OTHERS for name in policies])


def elsewhere(policies: Policies, loads: Sequence[Setting] = holdout.LOADS) -> list[Row]:
    """Each policy on the loads that nobody tuned on."""
    return parallel.each([partial(_row, name, text, loads) for name, text in policies.items()])


def beating(rows: Sequence[Row], by: str) -> list[list[Any]]:
    """Where a rival has both a higher lowest attainment and fewer hours than the law: (start or router, rival)."""
    law = {row[by]: row for row in rows if row["policy"] == rivals.LAW}
    return [
        [row[by], row["policy"]]
        for row in rows
        if row["lowest"] > law[row[by]]["lowest"] and row["accelerator_hours"] < law[row[by]]["accelerator_hours"]
    ]


def compare() -> dict[str, Any]:
    """All of it. It is ok where no rival with one setting beats the law in both figures at any start."""
    figures = kept.read()
    policies = defaults(figures)
    both = {name: policies[name] for name in (rivals.LAW, nearest(figures))}
    by_start, by_router = starts(policies), routers(policies)
    beaten = beating(by_start, "start")
    worst = min(row["lowest"] for row in by_start if row["policy"] == rivals.LAW)
    return {"name": "robustness", "ok": not beaten, "worst": worst, "settings": dict(policies), "beaten_by": beaten,
            "beaten_behind": beating(by_router, "router"), "starts": by_start, "routers": by_router,
            "holdout": elsewhere(both)}  # fmt: skip


def _row(name: str, policy: str, loads: Sequence[Setting], router: Routing = Routing.GATEWAY) -> Row:
    return {"policy": name, **standing.figures([play(load, policy, router=router) for load in loads], loads)}

"""What a default is worth: the law and its rivals, each with one setting, under other starts, other draws and other routers.

Every rival gets the best single of its settings, found at 60 s starts behind our gateway on all five traces (`frontier`); the law
has none. `static` is the cheapest fixed size that hindsight finds for each trace at its own start. Then, without tuning again:

    starts     10, 60, 180 and 600 s, three draws of each trace
    routers    our gateway, least loaded, round robin, at 60 s
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from steelyard.sim.policies.choose import choose
from steelyard.sim.policies.policy import Static
from steelyard.sim.run import Result
from steelyard.sim.scenario import DECODE, PREFILL, Routing

from bench.evidence import floors, frontier, oracle
from bench.evidence.settings import BUDGET, TRACES, Setting

STARTS = (10.0, 60.0, 180.0, 600.0)
SEEDS = (0, 1, 2)
AROUND = 2  # decode replicas to either side of the law's mean that hindsight tries
WANTED = frontier.WANTED


def play(setting: Setting, policy: str, seed: int = 0, routing: Routing = Routing.GATEWAY) -> Result:
    """One policy on one draw of a trace, behind a router."""
    scenario = setting.scenario(seed, routing=routing)
    return setting.run(scenario, choose(policy, setting.engine, setting.told(scenario, BUDGET)).make(), seed)


def hindsight(setting: Setting) -> Result | None:
    """The cheapest fixed size that reaches the attainment wanted, near the sizes that the law chose; None if none does."""
    law = floors.ours(setting)
    ready = [point.ready for point in law.timeline]
    means = {role: round(sum(sizes[role] for sizes in ready) / len(ready)) for role in (PREFILL, DECODE)}
    best: Result | None = None
    for decode in range(max(1, means[DECODE] - AROUND), means[DECODE] + AROUND + 1):
        for prefill in range(max(1, means[PREFILL] - AROUND), 3 * means[PREFILL] + AROUND):
            scenario = setting.scenario(initial={PREFILL: prefill, DECODE: decode})
            result = setting.run(scenario, Static())
            if best is not None and result.accelerator_hours >= best.accelerator_hours:
                break
            if result.attainment >= WANTED:
                best = result
                break
    return best


def starts(
    policies: Mapping[str, str], traces: Sequence[Setting] = TRACES, seeds: Sequence[int] = SEEDS
) -> list[dict[str, Any]]:
    """Each policy at each start: the lowest mean attainment of the traces, hours in all, and hours over the oracle's."""
    rows = []
    for seconds in STARTS:
        settings = [replace(setting, startup=seconds) for setting in traces]
        for name, text in policies.items():
            found = {setting.name: [play(setting, text, seed) for seed in seeds] for setting in settings}
            rows.append({"start": seconds, "policy": name, **_figures(found),
                         "over_oracle": _over_oracle(settings, found)})  # fmt: skip
    return rows


def routers(policies: Mapping[str, str], traces: Sequence[Setting] = TRACES) -> list[dict[str, Any]]:
    """Each policy behind each router, 60 s, one draw."""
    return [
        {"router": routing.value, "policy": name,
         **_figures({setting.name: [play(setting, text, routing=routing)] for setting in traces})}
        for routing in Routing
        for name, text in policies.items()
    ]  # fmt: skip


def compare(traces: tuple[Setting, ...] = TRACES, count: int = frontier.SETTINGS) -> dict[str, Any]:
    """All of it. It is ok where no rival with one setting beats the law in both figures at any start."""
    found = frontier.compare(traces, count)["rows"]
    policies = {"ours": "ours"} | {row["policy"]: row["setting"] for row in found if "setting" in row}
    rows = starts(policies, traces)
    fixed = {setting.name: hindsight(setting) for setting in traces}
    beaten = []
    for seconds in STARTS:
        here = [row for row in rows if row["start"] == seconds]
        mine = next(row for row in here if row["policy"] == "ours")
        beaten += [row["policy"] for row in here if row["lowest"] > mine["lowest"]
                   and row["accelerator_hours"] < mine["accelerator_hours"]]  # fmt: skip
    return {"name": "robustness", "ok": not beaten, "worst": min(r["lowest"] for r in rows if r["policy"] == "ours"),
            "beaten_by": beaten, "starts": rows, "routers": routers(policies, traces),
            "hindsight_static": {name: None if r is None else [round(r.attainment, 4), round(r.accelerator_hours, 3)]
                                 for name, r in fixed.items()}}  # fmt: skip


def _figures(found: Mapping[str, Sequence[Result]]) -> dict[str, Any]:
    means = {name: [sum(r.attainment for r in rs) / len(rs), sum(r.accelerator_hours for r in rs) / len(rs)]
             for name, rs in found.items()}  # fmt: skip
    return {
        "lowest": round(min(attained for attained, _ in means.values()), 4),
        "accelerator_hours": round(sum(hours for _, hours in means.values()), 3),
        "worst_draw": round(min(r.attainment for rs in found.values() for r in rs), 4),
        "worst_wait": round(max(r.record.ttft.greatest for rs in found.values() for r in rs), 1),
        "traces": {name: [round(value, 4) for value in pair] for name, pair in means.items()},
    }


def _over_oracle(settings: Sequence[Setting], found: Mapping[str, Sequence[Result]]) -> float:
    """Hours of the first draws over those of the oracle at the same attainments."""
    least = sum(oracle.bound(setting, found[setting.name][0].attainment) for setting in settings)
    return round(sum(found[setting.name][0].accelerator_hours for setting in settings) / least, 2)

"""Where the law stands against the floors that an exploration set: attainment at accelerator-hours, one default for all.

Everything is behind our gateway. Rivals here are the static sizes and ratios that hindsight would have chosen.
"""

from typing import Any

from steelyard.sim.policies.law import Law
from steelyard.sim.policies.policy import Action, Static
from steelyard.sim.run import Result
from steelyard.sim.scenario import DECODE, PREFILL
from steelyard.sim.watch import Watch

from bench.evidence.settings import MIXES, MOVING, TRACES, Setting

FIVE_FIXED = 0.935  # five prefill replicas and one for decode behind the gateway, Dynamo's engine and artefact
TRACES_LEAST, TRACES_HOURS = 0.95, 13.9
OVER_STATIC = {"alt150": 0.05, "alt450": 0.12, "day-night": 0.015, "still overload": -0.01}
MOVING_LEAST = 0.98
MOVING_HOURS = {"alt60 scaled": 3.8, "alt150 scaled": 4.2, "alt450 scaled": 7.0}
SEEDS = (2, 3, 4)


class RolesOnly:
    """The law's first layer alone: it may change roles, the number of replicas stays."""

    def __init__(self, law: Law) -> None:
        """Wrap a law."""
        self._law = law

    def tick(self, now: float, watch: Watch) -> Action | None:
        """Keep only the role changes."""
        action = self._law.tick(now, watch)
        return Action(relabel=action.relabel) if action is not None else None


def ours(setting: Setting, seed: int = 0, **changes: Any) -> Result:
    """The law on one setting."""
    scenario = setting.scenario(seed, **changes)
    return setting.run(scenario, Law(setting.told(scenario)), seed)


def roles_only(setting: Setting, seed: int) -> Result:
    """The law's role changes under a fixed budget."""
    scenario = setting.scenario(seed)
    total = sum(scenario.initial.values())
    return setting.run(scenario, RolesOnly(Law(setting.told(scenario, total))), seed)


def static(setting: Setting, prefill: int, decode: int, seed: int = 0) -> Result:
    """A fixed ratio."""
    scenario = setting.scenario(seed, initial={PREFILL: prefill, DECODE: decode})
    return setting.run(scenario, Static(), seed)


def five_fixed() -> dict[str, Any]:
    """Five prefill replicas, Dynamo's engine with its artefact, our gateway."""
    result = static(TRACES[0], 5, 1)
    return {"name": "floor-five-fixed", "ok": result.attainment >= FIVE_FIXED, "worst": round(result.attainment, 4),
            "limit": FIVE_FIXED, "accelerator_hours": round(result.accelerator_hours, 3)}  # fmt: skip


def traces() -> dict[str, Any]:
    """The five traces, and the sum of their hours."""
    rows: list[dict[str, Any]] = [_row(setting.name, ours(setting)) for setting in TRACES]
    worst, hours = min(row["attainment"] for row in rows), sum(row["accelerator_hours"] for row in rows)
    return {"name": "floor-traces", "ok": worst >= TRACES_LEAST and hours <= TRACES_HOURS, "worst": worst,
            "limit": TRACES_LEAST, "accelerator_hours": round(hours, 3), "hours_limit": TRACES_HOURS, "rows": rows}  # fmt: skip


def mixes(seeds: tuple[int, ...] = SEEDS) -> dict[str, Any]:
    """Moving mixes under a fixed budget: role changes against the static ratio that hindsight would choose."""
    rows: list[dict[str, Any]] = []
    for setting in MIXES:
        total, first = sum(setting.initial.values()), setting.initial[PREFILL]
        around = [p for p in range(first - 3, first + 3) if 0 < p < total]
        rivals = {f"{p}:{total - p}": _mean([static(setting, p, total - p, s) for s in seeds]) for p in around}
        best = max(rivals, key=lambda ratio: rivals[ratio]["attainment"])
        mine = _mean([roles_only(setting, s) for s in seeds])
        gain = mine["attainment"] - rivals[best]["attainment"]
        rows.append({"mix": setting.name, **mine, "best_static": best, "static": rivals[best],
                     "gain": round(gain, 4), "gain_wanted": OVER_STATIC.get(setting.name)})  # fmt: skip
    judged = [row for row in rows if row["gain_wanted"] is not None]
    short = min(row["gain"] - row["gain_wanted"] for row in judged)
    return {"name": "floor-mixes", "ok": short >= 0, "worst": round(short, 4), "limit": 0.0, "rows": rows}


def moving(seeds: tuple[int, ...] = SEEDS) -> dict[str, Any]:
    """Moving mixes with scaling."""
    rows: list[dict[str, Any]] = []
    for setting in MOVING:
        mean = _mean([ours(setting, s) for s in seeds])
        rows.append({"mix": setting.name, **mean, "hours_wanted": MOVING_HOURS[setting.name]})
    ok = all(row["attainment"] >= MOVING_LEAST and row["accelerator_hours"] <= row["hours_wanted"] for row in rows)
    return {"name": "floor-moving", "ok": ok, "worst": min(row["attainment"] for row in rows), "limit": MOVING_LEAST,
            "rows": rows}  # fmt: skip


def _row(name: str, result: Result) -> dict[str, Any]:
    return {
        "trace": name,
        "attainment": round(result.attainment, 4),
        "over_time": round(result.attainment_over_time, 4),
        "accelerator_hours": round(result.accelerator_hours, 3),
        "starts": result.starts,
        "role_changes_per_minute": round(result.role_changes / (result.seconds / 60), 2),
        "worst_wait": round(result.record.ttft.greatest, 1),
    }


def _mean(results: list[Result]) -> dict[str, float]:
    def mean(values: list[float]) -> float:
        return round(sum(values) / len(values), 4)

    return {
        "attainment": mean([r.attainment for r in results]),
        "over_time": mean([r.attainment_over_time for r in results]),
        "accelerator_hours": mean([r.accelerator_hours for r in results]),
        "role_changes_per_minute": mean([r.role_changes / (r.seconds / 60) for r in results]),
    }

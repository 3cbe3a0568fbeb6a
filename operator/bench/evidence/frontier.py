"""The law beside its rivals in one run: same engine, same gateway, same queue order, same metrics, same number of settings.

Each rival gets `SETTINGS` random settings on each trace. Its *tuned* figure is the cheapest of them that reaches the
attainment wanted on that very trace (hindsight, an upper bound); its *carried* figure is the setting that was tuned on one
trace, run on the others (what a default is worth). The law has one default and no settings.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from steelyard.sim.policies.choose import choose
from steelyard.sim.run import Result

from bench.evidence.settings import BUDGET, TRACES, Setting

SETTINGS = 8
WANTED = 0.95


def _one_of(*values: float) -> Callable[[Random], float]:
    return lambda random: random.choice(values)


# What may be tuned, and over which values.
SPACE: Mapping[str, Mapping[str, Callable[[Random], float]]] = {
    "hpa-queue": {"target": _one_of(0.5, 1, 2, 4, 8), "window": _one_of(30, 60, 120, 300), "kv_target": _one_of(0.5, 0.7, 0.85)},
    "hpa-utilisation": {"target": _one_of(0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8), "window": _one_of(30, 60, 120, 300),
                        "kv_target": _one_of(0.5, 0.7, 0.85)},
    "fixed-ratio": {"tokens_per_second": _one_of(60, 120, 240, 500, 1000), "ratio": _one_of(0.33, 0.66, 1.75, 3, 6),
                    "window": _one_of(30, 60, 120, 300)},
    "token-velocity": {"share": _one_of(0.25, 0.35, 0.5, 0.65, 0.8, 1.0), "window": _one_of(30, 60, 120, 300),
                       "kv_target": _one_of(0.5, 0.7, 0.85)},
    "dynamo-load": {"up_tokens": _one_of(500, 1000, 2000, 4000, 8000), "down_tokens": _one_of(50, 200, 500, 1000)},
}  # fmt: skip


def settings(name: str, count: int = SETTINGS) -> list[str]:
    """Random settings of a rival, the same for everybody who asks."""
    random = Random(f"frontier {name}")
    return [",".join([name, *(f"{key}={draw(random):g}" for key, draw in SPACE[name].items())]) for _ in range(count)]


def play(setting: Setting, policy: str) -> Result:
    """One policy on one trace."""
    scenario = setting.scenario()
    return setting.run(scenario, choose(policy, setting.engine, setting.told(scenario, BUDGET)).make())


def compare(traces: tuple[Setting, ...] = TRACES, count: int = SETTINGS) -> dict[str, Any]:
    """All of it; the law's row first."""
    rows: list[dict[str, Any]] = [_figures("ours", [play(setting, "ours") for setting in traces], traces)]
    for name in SPACE:
        tried = {text: [play(setting, text) for setting in traces] for text in settings(name, count)}
        tuned = [_cheapest(tried, index) for index in range(len(traces))]
        best = min(tried, key=lambda text: _rank(tried[text]))
        rows.append({
            **_figures(f"{name}, best single setting", tried[best], traces),
            "setting": best,
            "tuned_on_each": {
                setting.name: None if text is None else _pair(tried[text][index])
                for index, (setting, text) in enumerate(zip(traces, tuned, strict=True))
            },
            "carried": {
                setting.name: None if text is None else [_pair(result) for result in tried[text]]
                for setting, text in zip(traces, tuned, strict=True)
            },
        })  # fmt: skip
    worst = rows[0]["lowest"]
    return {"name": "frontier", "ok": True, "worst": worst, "wanted": WANTED, "rows": rows}


def _cheapest(tried: Mapping[str, list[Result]], index: int) -> str | None:
    enough = [text for text, results in tried.items() if results[index].attainment >= WANTED]
    return min(enough, key=lambda text: tried[text][index].accelerator_hours, default=None)


def _rank(results: list[Result]) -> tuple[float, float]:
    """The best single setting: the highest of the lowest attainments, up to what is wanted; then the cheapest."""
    return -min(WANTED, min(r.attainment for r in results)), sum(r.accelerator_hours for r in results)


def _figures(name: str, results: list[Result], traces: tuple[Setting, ...]) -> dict[str, Any]:
    return {
        "policy": name,
        "lowest": round(min(r.attainment for r in results), 4),
        "accelerator_hours": round(sum(r.accelerator_hours for r in results), 3),
        "traces": {setting.name: _pair(result) for setting, result in zip(traces, results, strict=True)},
    }


def _pair(result: Result) -> list[float]:
    return [round(result.attainment, 4), round(result.accelerator_hours, 3)]

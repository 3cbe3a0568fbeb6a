"""How far the law is from the physical limit: accelerator-hours over those of the oracle at the attainment that was reached.

To meet the objectives of a share X of the requests one must compute at least the prompts of the X shortest, and generate at
least the X shortest answers; the oracle serves that much work, whichever is cheapest, at the best rates an engine has,
with perfect knowledge, starts charged but for the replicas that run at the beginning. What arrives within a bin may be
computed within it or within the TTFT objective after it. Both roles are scheduled apart, each with at least one replica. A
fluid limit, below what anybody can reach: queueing is not in it.
"""

from collections.abc import Sequence
from math import ceil
from typing import Any

from steelyard.sim.engine import Engine
from steelyard.sim.oracle import cheapest_share
from steelyard.sim.requests import Arrival
from steelyard.sim.scenario import DECODE, PREFILL

from bench.evidence import floors
from bench.evidence.settings import TRACES, Setting

PREFILL_BIN, DECODE_BIN = 10.0, 5.0  # seconds


def bound(setting: Setting, share: float, seed: int = 0) -> float:
    """Accelerator-hours of the oracle that meets the objectives of `share` of the requests."""
    arrivals = setting.arrivals(seed)
    seconds = 0.0
    for load, width, sizes, role in _loads(arrivals, setting):
        least = _least_work(sizes, share)
        paid = cheapest_share(load, width, setting.startup, least, setting.initial[role])[0]
        seconds += max(paid, arrivals[-1].at)
    return seconds / 3600


def mean_needs(setting: Setting, share: float) -> dict[str, float]:
    """Replicas of each role that the least work of that share takes on average: no fixed size below it serves so much."""
    loads = _loads(setting.arrivals(0), setting)
    return {role: _least_work(sizes, share) * sum(load) / len(load) for load, _, sizes, role in loads}


def _loads(arrivals: Sequence[Arrival], setting: Setting) -> tuple[tuple[list[float], float, list[int], str], ...]:
    """Of each role: replicas needed in each bin, seconds of a bin, sizes of the requests, and its name."""
    span = arrivals[-1].at
    decode = _decode_load(arrivals, setting.engine, setting.objectives.tpot_seconds or 1.0, span)
    return (
        (_prefill_load(arrivals, setting, span), PREFILL_BIN, [a.prompt - a.cached for a in arrivals], PREFILL),
        (decode, DECODE_BIN, [a.answer for a in arrivals], DECODE),
    )


def _least_work(sizes: Sequence[int], share: float) -> float:
    """The share of all work that the shortest `share` of the requests makes up."""
    ranked = sorted(sizes)
    return sum(ranked[: int(share * len(ranked))]) / sum(ranked)


def distance() -> dict[str, Any]:
    """The five traces. It is ok where the law needs at least as much as the oracle, else one of the two is wrong."""
    rows: list[dict[str, Any]] = []
    for setting in TRACES:
        result = floors.ours(setting)
        least = bound(setting, result.attainment)
        rows.append({
            "trace": setting.name,
            "attainment": round(result.attainment, 4),
            "accelerator_hours": round(result.accelerator_hours, 3),
            "oracle_hours": round(least, 3),
            "ratio": round(result.accelerator_hours / least, 2),
        })  # fmt: skip
    ratios = [row["accelerator_hours"] / row["oracle_hours"] for row in rows]
    return {"name": "oracle", "ok": min(ratios) >= 1, "worst": round(max(ratios), 2), "rows": rows}


def _prefill_load(arrivals: Sequence[Arrival], setting: Setting, span: float) -> list[float]:
    time = PREFILL_BIN + (setting.objectives.ttft_seconds or 0.0)
    rate = setting.engine.peak_prefill_rate()
    load = [0.0] * (int(span / PREFILL_BIN) + 1)
    for arrival in arrivals:
        load[int(arrival.at / PREFILL_BIN)] += (arrival.prompt - arrival.cached) / (rate * time)
    return load


def _decode_load(arrivals: Sequence[Arrival], engine: Engine, tpot: float, span: float) -> list[float]:
    """Each answer's tokens are spread over the time that it takes at the objective."""
    load = [0.0] * (int(span / DECODE_BIN) + 1)
    context = sum(a.prompt + a.answer / 2 for a in arrivals) / len(arrivals)
    held = engine.slots(context, tpot)
    rate = held / engine.step_seconds(held, held * context)
    for arrival in arrivals:
        bins = max(1, ceil(arrival.answer * tpot / DECODE_BIN))
        for number in range(bins):
            at = int(arrival.at / DECODE_BIN) + number
            if at < len(load):
                load[at] += arrival.answer / bins / (rate * DECODE_BIN)
    return load

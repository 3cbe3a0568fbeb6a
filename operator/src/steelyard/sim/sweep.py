"""Every ratio of prefill and decode replicas of a measured engine, at several rates: which one serves the most.

The best ratio is the one whose attainment, averaged over the rates, is highest among those that keep the promise up to the
highest rate; the table shows what one replica off the best costs, on which side.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from steelyard.decide.queue.judge import Objectives
from steelyard.sim.engine import Engine
from steelyard.sim.requests import Arrival
from steelyard.sim.run import simulate
from steelyard.sim.scenario import DECODE, PREFILL, Scenario


@dataclass(frozen=True, slots=True)
class Cell:
    """One ratio at one rate: shares of requests that met TTFT, TPOT and both."""

    prefill: int
    decode: int
    rate: float
    ttft: float
    tpot: float
    both: float


def sweep(engine: Engine, total: int, rates: Sequence[float], load: Sequence[Arrival], objectives: Objectives,
          handoff_seconds: float = 0.0, seed: int = 0) -> list[Cell]:  # fmt: skip
    """Play `load` at each rate on every ratio of `total` replicas; its own clock is stretched. Raises ValueError."""
    if total < 2:
        raise ValueError(f"{total} replicas have no ratio; two are needed")
    if len(load) < 2:
        raise ValueError(f"the load has {len(load)} requests; two are needed for a rate")
    own = (len(load) - 1) / max(load[-1].at - load[0].at, 1e-9)
    cells = []
    for rate in rates:
        played = [arrival._replace(at=(arrival.at - load[0].at) * own / rate) for arrival in load]
        for prefill in range(1, total):
            scenario = Scenario(engine=engine, objectives=objectives, initial={PREFILL: prefill, DECODE: total - prefill},
                                handoff_seconds=handoff_seconds, seed=seed)  # fmt: skip
            result = simulate(scenario, played)
            ended = max(result.record.ended, 1)
            cells.append(Cell(prefill, total - prefill, rate, result.record.ttft_met / ended, result.record.tpot_met / ended,
                              result.attainment))  # fmt: skip
    return cells


def best(cells: Sequence[Cell], wanted: float) -> tuple[int, int]:
    """The ratio that serves the highest rate with attainment `wanted`; of several the one with the highest mean attainment."""
    by_ratio: dict[tuple[int, int], list[Cell]] = {}
    for cell in cells:
        by_ratio.setdefault((cell.prefill, cell.decode), []).append(cell)

    def worth(ratio: tuple[int, int]) -> tuple[float, float]:
        own = by_ratio[ratio]
        served = max((cell.rate for cell in own if cell.both >= wanted), default=0.0)
        return served, sum(cell.both for cell in own) / len(own)

    return max(by_ratio, key=worth)

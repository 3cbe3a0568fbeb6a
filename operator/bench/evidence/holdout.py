"""Nine loads at which nobody looked while the law's constants were chosen: other hours, speeds, draws and mixes. Written down
before, run after the choice; one draw each, 60 s starts, 95 % asked for.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from steelyard.decide.queue.judge import Objectives
from steelyard.sim.engine import Engine
from steelyard.sim.requests import Arrival
from steelyard.sim.scenario import DECODE, PREFILL, Routing

from bench.evidence import data, parallel, standing
from bench.evidence.engines import CLASS_32B, DYNAMO
from bench.evidence.playing import play
from bench.evidence.rivals import LAW, WANTED
from bench.evidence.settings import Setting, alternating, day_and_night

OTHER = 10  # the draw of what is drawn at random


def _load(
    name: str,
    arrivals: Callable[[], list[Arrival]],
    prefill: int,
    decode: int,
    engine: Engine = CLASS_32B,
    ttft: float = 2.0,
) -> Setting:
    return Setting(name, lambda seed: arrivals(), engine, Objectives(ttft, 0.05), {PREFILL: prefill, DECODE: decode})


LOADS = (
    _load("servegen r1, hours 4–10, another draw", lambda: data.servegen_r1("4-10-other"), 3, 9),
    _load("servegen r1, hours 10–16", lambda: data.servegen_r1("10-16"), 5, 14),
    _load("servegen r1, hours 16–22", lambda: data.servegen_r1("16-22"), 5, 14),
    _load("azure-conv ×5", lambda: data.azure_conversation(5), 4, 2),
    _load("azure-code ×5, TTFT 1 s", lambda: data.azure_code(5), 4, 1, ttft=1.0),
    _load("mooncake ×4", lambda: data.mooncake(4), 4, 5, engine=DYNAMO, ttft=3.0),
    _load("azure-2024 code day, another draw", lambda: data.azure_2024_code_day(OTHER), 3, 1),
    _load("day and night of three traces", lambda: day_and_night(1800, 900, 1.2, 0.6, 0.3, OTHER), 9, 5),
    _load("the mix turns every 300 s", lambda: alternating(300, 1500, OTHER), 7, 7),
)


def compare() -> dict[str, Any]:
    """The law on all of them, whatever it is; `below` names those that miss what is asked for."""
    rows = parallel.each([partial(play, load, LAW) for load in LOADS])
    found = standing.figures(rows, LOADS)
    below = [row["load"] for row in rows if row["attainment"] < WANTED]
    return {"name": "holdout", "ok": True, "worst": found["lowest"], "wanted": WANTED, "below": below, "law": found,
            "rows": [{**row, **_rounded(row)} for row in rows]}  # fmt: skip


def law(router: Routing) -> dict[str, Any]:
    """The law's figures on all of them behind another router."""
    return standing.figures(parallel.each([partial(play, load, LAW, router=router) for load in LOADS]), LOADS)


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    return {key: round(value, 4) for key, value in row.items() if isinstance(value, float)} | {
        "quarters": [round(value, 4) for value in row["quarters"]]
    }

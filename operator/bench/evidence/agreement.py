"""How far rates lie from requests: two loads of `settings`, each played request by request and in rates.

One constant of the fluid mode (AS_THEY_COME of `sim/flow`) was fitted on the first of them. Two kinds of rows are told, not judged:

    below SERVING   roles are far too small, and rates are too kind: not the attainment
    below LONG      the last answers, which rates leave out, are too large a part of the hours: not the hours
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from steelyard.sim import fluid, trace
from steelyard.sim.flow import Flow, Lengths
from steelyard.sim.policies.choose import choose
from steelyard.sim.run import Result
from steelyard.sim.scenario import DECODE, PREFILL

from bench.evidence import data
from bench.evidence.engines import CLASS_32B
from bench.evidence.settings import TRACES, Setting

SHARES_APART, HOURS_APART = 0.04, 0.10  # at most, of the attainment and of the hours by requests
SERVING = 0.9  # attainment
LONG = 2.0  # accelerator-hours
SPAN = 10.0  # seconds of one row of rates made from requests


def day_of_code() -> tuple[Setting, Flow]:
    """The Azure-2024 code day of `settings`, an hour long, as rates: what AS_THEY_COME of `sim/flow` was fitted on."""
    setting = next(one for one in TRACES if one.name.startswith("azure-2024"))
    speed, first, last = 24.0, 6 * 3600.0, 30 * 3600.0
    inside = [row for row in trace.rates(data.HERE / "azure-2024-code-rate.csv.gz") if first <= row[0] < last]
    rates = [(max(0.0, at - first) / speed, rate) for at, rate in inside]
    lengths = Lengths.of([(a.prompt, a.answer) for a in data.azure_code(1.0)])
    return setting, Flow([(0.0, rates[0][1]), *rates[1:]], (last - first) / speed, lengths, 2.0, 0.35)


def conversations() -> tuple[Setting, Flow]:
    """Azure's conversations ×10, six minutes, as rates of ten seconds."""
    setting = next(one for one in TRACES if one.name.startswith("azure-conv"))
    arrivals = setting.arrivals(0)
    counts = [0.0] * (int(arrivals[-1].at / SPAN) + 1)
    for arrival in arrivals:
        counts[int(arrival.at / SPAN)] += 1 / SPAN
    lengths = Lengths.of([(a.prompt, a.answer) for a in arrivals])
    return setting, Flow([(SPAN * n, rate) for n, rate in enumerate(counts)], arrivals[-1].at, lengths, 1.1)


def played() -> list[dict[str, Any]]:
    """The same loads by requests and by rates: the law from its usual start, and fixed sizes."""
    rows = []
    for (setting, flow), sizes in (
        (day_of_code(), ((3, 1), (4, 1), (5, 1))),
        (conversations(), ((5, 3), (7, 3), (7, 2))),
    ):
        for policy, initial in (
            ("ours", dict(setting.initial)),
            *((f"static={p}:{d}", {PREFILL: p, DECODE: d}) for p, d in sizes),
        ):
            given = setting.scenario(initial=initial)
            exact, liquid = (
                run(choose(policy, CLASS_32B, setting.told(given)).make())
                for run in (partial(setting.run, given), partial(fluid.play, given, flow))
            )
            rows.append({"load": setting.name, "policy": policy, "requests": _pair(exact), "rates": _pair(liquid)})
    return rows


def compared() -> dict[str, Any]:
    """Both ways of all rows, and how far they lie apart at most where that is judged."""
    return judged(played())


def judged(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The rows, each with whether its attainment and its hours are judged; the largest distances, and whether they are
    allowed."""
    told = [{**row, "judged": _judged(row)} for row in rows]
    apart = max(abs(row["requests"][0] - row["rates"][0]) for row in told if row["judged"][0])
    hours = max(abs(row["rates"][1] / row["requests"][1] - 1) for row in told if row["judged"][1])
    return {"ok": apart <= SHARES_APART and hours <= HOURS_APART, "apart": round(apart, 4), "hours_apart": round(hours, 4),
            "limits": [SHARES_APART, HOURS_APART], "serving": SERVING, "long": LONG, "rows": told}  # fmt: skip


def _judged(row: Mapping[str, Any]) -> list[bool]:
    attainment, hours = row["requests"]
    return [attainment >= SERVING, hours >= LONG]


def _pair(result: Result) -> list[float]:
    return [round(result.attainment, 4), round(result.accelerator_hours, 3)]

"""The roofline against 35 measured deployments (AIConfigurator's silicon anchors, H100 to GB300, 12 of them disaggregated).

What a row gives is a closed loop: so many requests are always in flight, each followed by the next. From that,

    TPOT, one pool      step(b) + (b − 1) · prefill / answer      every other request reads one prompt during an answer
    TPOT, two pools     step(b), b of each decode worker as the row says
    TTFT                prefill · (1 + ρ / (2 (1 − ρ))), ρ the share of time that prefill takes (M/D/1), and where prefill is
                        the bottleneck what is left of the loop: in flight · prefill / workers − answer · TPOT

Errors are reported three ways: with the factors of published kernels, with factors fitted to all rows but the one judged,
and against the bound, which no row may beat. Factors are fitted to TPOT, which a row's settings determine. TTFT holds what
they do not: arrivals in bursts, the serving program itself, queues of a loop that is too full; for it the fit is one
constant, the median of what is missing, and rows whose TTFT is mostly such a queue stay in.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import exp, log
from statistics import median
from typing import Any

from steelyard.catalog.accelerators import ACCELERATORS
from steelyard.catalog.models import known
from steelyard.decide.model.calibration import FITTED
from steelyard.decide.model.layout import Layout
from steelyard.decide.model.roofline import Factors, Roofline, machine
from steelyard.decide.model.work import work

from bench.evidence import data

SYSTEMS = {"h100_sxm": "h100", "h200_sxm": "h200", "b200_sxm": "b200", "b300_sxm": "b300"}
FORMATS = {"": ("none", "bf16"), "fp8": ("fp8", "fp8"), "fp8_block": ("fp8", "fp8"), "nvfp4": ("nvfp4", "fp4")}
START = Factors(0.45, 0.8, 0.002, 20e-6, 5e-6)
LIMITS = {
    "arithmetic": (0.05, 1.0),
    "bandwidth": (0.05, 1.0),
    "layer_seconds": (1e-7, 1e-3),
    "collective_seconds": (1e-7, 1e-3),
}


@dataclass(frozen=True, slots=True)
class Pool:
    """Workers of one role; `batch` sequences each."""

    replica: Roofline
    workers: int
    batch: float


@dataclass(frozen=True, slots=True)
class Anchor:
    """One measured deployment."""

    name: str
    prompt: int
    answer: int
    flight: float  # requests that are always in flight
    prefill: Pool
    decode: Pool
    aggregated: bool
    ttft: float
    tpot: float


def anchors() -> list[Anchor]:
    """Read the table."""
    return [_anchor(row) for row in data.table("silicon-anchors.csv")]


def _anchor(row: Mapping[str, str]) -> Anchor:
    aggregated = row["mode"] == "agg"
    prefill, decode = (_pool(row, "" if aggregated else role) for role in ("prefill_", "decode_"))
    flight = float(row["concurrency"] or decode.batch * decode.workers)
    return Anchor(row["name"], int(row["isl"]), int(row["osl"]), flight, prefill, decode, aggregated,
                  float(row["silicon_ttft_ms"]) / 1000, float(row["silicon_tpot_ms"]) / 1000)  # fmt: skip


def _pool(row: Mapping[str, str], role: str) -> Pool:
    def number(name: str) -> int:
        return int(row[role + name] or 1)

    found = known(row["model_path"])
    assert found is not None, row["model_path"]
    weights, products = FORMATS[row["gemm_quant_mode"]]
    data_parallel = number("attention_dp_size")
    layout = Layout(number("tp_size"), number("pp_size"), data_parallel, number("moe_ep_size") > 1)
    kv = "fp8" if row["backend"] == "trtllm" and weights != "none" else "none"  # its default with such checkpoints
    spec = ACCELERATORS[SYSTEMS.get(row["system"], row["system"])].spec
    replica = Roofline(machine(spec, products), work(found[0].shape, weights, kv), layout)
    return Pool(replica, number("num_workers") if role else 1, number("batch_size") * data_parallel)


def predicted(anchor: Anchor, factors: Factors) -> tuple[float, float]:
    """TTFT and TPOT, in seconds."""
    prompt, answer = anchor.prompt, anchor.answer
    prefill = _with(anchor.prefill.replica, factors).prefill_seconds([prompt])
    batch = min(anchor.decode.batch, anchor.flight / anchor.decode.workers)
    tpot = _with(anchor.decode.replica, factors).decode_step_seconds(batch, prompt + answer / 2)
    waiting = tpot / 2 if anchor.aggregated else 0.0
    if anchor.aggregated:
        tpot += max(batch - 1, 0) * prefill / answer
    lanes = anchor.prefill.workers * anchor.prefill.replica.layout.data
    ttft = prefill
    for _ in range(40):
        load = min(0.95, anchor.flight / (ttft + answer * tpot) * prefill / lanes)
        queued = prefill * (1 + load / (2 * (1 - load)))
        ttft += 0.5 * (max(queued, anchor.flight * prefill / lanes - answer * tpot) - ttft)
    return waiting + ttft, tpot


def bound(anchor: Anchor) -> tuple[float, float]:
    """TTFT and TPOT that no hardware of the row can beat."""
    batch = min(anchor.decode.batch, anchor.flight / anchor.decode.workers)
    step = anchor.decode.replica.bound_decode(batch, anchor.prompt + anchor.answer / 2)
    return anchor.prefill.replica.bound_prefill([anchor.prompt]), step


def _with(replica: Roofline, factors: Factors) -> Roofline:
    return Roofline(replica.machine, replica.work, replica.layout, factors)


def loss(rows: Sequence[Anchor], factors: Factors) -> float:
    """Mean distance of the logarithms of TPOT."""
    return sum(abs(log(predicted(row, factors)[1] / row.tpot)) for row in rows) / len(rows)


def missing(rows: Sequence[Anchor], factors: Factors) -> float:
    """Median of what the first token took longer than computed, in seconds."""
    return median(row.ttft - predicted(row, factors)[0] for row in rows)


def fitted(rows: Sequence[Anchor], start: Factors, rounds: int) -> Factors:
    """Move one factor after another to where the loss is least, by ever smaller steps."""
    values = {name: getattr(start, name) for name in LIMITS}
    best = loss(rows, start)
    step = 0.5
    for _ in range(rounds):
        for name, (least, most) in LIMITS.items():
            for move in (exp(step), exp(-step)):
                tried = {**values, name: min(max(values[name] * move, least), most)}
                found = loss(rows, Factors(launch_seconds=start.launch_seconds, **tried))
                if found < best:
                    best, values = found, tried
        step *= 0.7
    return Factors(launch_seconds=start.launch_seconds, **values)


def compare() -> dict[str, Any]:
    """All rows. It is ok where no measurement beats the bound and the factors in use are as good as a new fit."""
    rows = anchors()
    told: list[dict[str, Any]] = []
    for index, row in enumerate(rows):
        others = rows[:index] + rows[index + 1 :]
        own = fitted(others, FITTED, 4)
        seen, plain, left_out, least = (row.ttft, row.tpot), predicted(row, Factors()), predicted(row, own), bound(row)
        left_out = (left_out[0] + missing(others, own), left_out[1])
        told.append({
            "row": row.name, "measured_ms": [round(value * 1000, 2) for value in seen],
            "bound_ms": [round(value * 1000, 2) for value in least],
            "over_bound": [round(m / b, 2) for m, b in zip(seen, least, strict=True)],
            "uncalibrated_percent": [round((p / m - 1) * 100, 1) for p, m in zip(plain, seen, strict=True)],
            "left_out_percent": [round((p / m - 1) * 100, 1) for p, m in zip(left_out, seen, strict=True)],
        })  # fmt: skip
    medians = {f"{name}_{kind}_median_percent": round(median(abs(row[f"{kind}_percent"][part]) for row in told), 1)
               for part, name in enumerate(("ttft", "tpot")) for kind in ("uncalibrated", "left_out")}  # fmt: skip
    anew = fitted(rows, START, 14)
    closest = min(min(row["over_bound"]) for row in told)
    worst = max(abs(row["left_out_percent"][1]) for row in told)
    return {
        "name": "silicon", "ok": closest >= 1 and loss(rows, FITTED) <= 1.02 * loss(rows, anew), "worst": worst,
        "unit": "percent of TPOT, left out", "limit": "none: reported whatever it is", "closest_to_bound": closest, **medians,
        "first_token_missing_seconds": round(missing(rows, FITTED), 3), "factors_anew": asdict(anew), "rows": told,
    }  # fmt: skip

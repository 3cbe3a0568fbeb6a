"""Our simulator against three measured runs of vLLM 0.19.0: 300 requests in 29 s, far more than one replica can serve.

One replica that does both kinds of work, chunked prefill, first come, first served, with the run's limits of sequences,
batch tokens and KV. Everything queues, so a step that is 1 % too slow shows in every wait behind it.

    calibrated   a, b (prefill), g0, g1, g3 (step), fitted on the even requests from the roofline on; judged on the odd ones.
                 Means within 5 %, 99th percentiles within 10 % of what was measured
    across       the coefficients of one run, scaled to another model or accelerator by the rooflines of both, judged on all
                 requests of that run; reported whatever it is

The two halves are of one run and share its queue: it is a test of the form, not of another load. Another load is `across`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from steelyard.catalog.accelerators import ACCELERATORS
from steelyard.catalog.models import known
from steelyard.decide.model.layout import Layout
from steelyard.decide.model.roofline import Machine, Roofline, machine
from steelyard.decide.model.work import work
from steelyard.decide.queue.judge import Objectives, Outcome
from steelyard.sim.engine import Engine
from steelyard.sim.requests import Arrival, Request
from steelyard.sim.scenario import AGGREGATED, Routing, Scenario
from steelyard.sim.world import World

from bench.evidence import data

MEANS, TAILS = 0.05, 0.10
STEPS = (0.3, 0.1, 0.03, 0.01, 0.003)  # of a coefficient's logarithm
NOTHING = float(np.log(1e-7))  # of a coefficient in seconds: less is none
LEAST = 1e-4  # seconds: where a coefficient begins that may be nothing
# Bandwidth as the run's own configuration says; peak after the vendor's sheet, unverified (dense, fp16 accumulation).
RTX_4090 = Machine(flops=165e12, attention_flops=165e12, bandwidth=1.008e12, link=32e9, domain=1, between=25e9)


class Run(NamedTuple):
    """One measured run, and what its engine was told."""

    name: str
    file: str
    sequences: int
    kv_tokens: int  # of the RTX PRO 6000 runs it was not published: memory less weights, far from being a limit
    model: str
    accelerator: str
    accelerators: int
    batch_tokens: int = 2048


class Timed(NamedTuple):
    """Seconds of one request, as measured or as simulated."""

    ttft: float
    tpot: float


RUNS = (
    Run("RTX 4090, Llama 3.1 8B", "vllm-rtx4090-llama-3.1-8b.csv.gz", 256, 41_408, "meta-llama/Llama-3.1-8B", "rtx-4090", 1),
    Run("RTX PRO 6000, Llama 3.1 8B", "vllm-rtxpro6000-llama-3.1-8b.csv.gz", 128, 530_000, "meta-llama/Llama-3.1-8B",
        "rtx-pro-6000", 1),
    Run("2 × RTX PRO 6000, Qwen3 32B", "vllm-rtxpro6000x2-qwen3-32b.csv.gz", 128, 410_000, "Qwen/Qwen3-32B", "rtx-pro-6000", 2),
)  # fmt: skip


class Timing(World):
    """A world that keeps each request's times."""

    def __init__(self, scenario: Scenario) -> None:
        """Begin without any."""
        super().__init__(scenario)
        self.times: dict[int, Timed] = {}

    def _end(self, request: Request, outcome: Outcome, now: float) -> None:
        if request.first is not None:
            ttft, rest = request.first - request.arrived, max(1, request.answer - 1)
            self.times[request.key] = Timed(ttft, (now - request.first) / rest)
        super()._end(request, outcome, now)


def measured(run: Run) -> tuple[list[Arrival], list[Timed]]:
    """The requests of a run, and what vLLM took for each."""
    arrivals, times = [], []
    for row in data.table(run.file):
        at, first, last = float(row["at"]), float(row["first"]), float(row["last"])
        prompt, answer = int(row["prompt_tokens"]), int(row["output_tokens"])
        arrivals.append(Arrival(at, prompt, answer))
        times.append(Timed(first - at, (last - first) / (answer - 1)))
    return arrivals, times


def engine(run: Run, coefficients: Sequence[float]) -> Engine:
    """An engine with these a, b, g0, g1, g3."""
    a, b, g0, g1, g3 = coefficients
    return Engine(
        prefill=(a, b, 0.0),
        decode=(g0, g1, 0.0, g3),
        kv_tokens=run.kv_tokens,
        batch_tokens=run.batch_tokens,
        max_sequences=run.sequences,
    )


def simulated(run: Run, arrivals: list[Arrival], coefficients: Sequence[float]) -> list[Timed]:
    """The same requests on our replica."""
    world = Timing(
        Scenario(
            engine=engine(run, coefficients),
            objectives=Objectives(None, None),
            initial={AGGREGATED: 1},
            routing=Routing.ROUND_ROBIN,
        )
    )
    world.run(arrivals)
    return [world.times[key] for key in range(len(arrivals))]


def calibrated(run: Run, half: slice) -> tuple[float, ...]:
    """Fit the coefficients to one half of a run's requests, from the roofline on: least squares of both times over their
    means, by moves along one coefficient at a time, and along the last round's move, that become ever smaller."""
    arrivals, truth = measured(run)
    target = _vector(truth[half])
    scale = np.concatenate([np.full(len(part), part.mean()) for part in np.split(target, 2)])

    def error(point: np.ndarray) -> float:
        if float(point.min()) < NOTHING:
            return float("inf")
        missed = (_vector(simulated(run, arrivals, np.exp(point).tolist())[half]) - target) / scale
        return float(missed @ missed)

    point = np.log(prior(run))
    best = error(point)
    for step in STEPS:
        better = True
        while better:
            before = point
            for direction in np.eye(len(point)):
                for tried in (point + step * direction, point - step * direction):
                    if (found := error(tried)) < best:
                        point, best = tried, found
                        break
            better = bool(np.any(point != before))
            while better and (found := error(2 * point - before)) < best:
                point, before, best = 2 * point - before, point, found
    return tuple(np.exp(point).tolist())


def prior(run: Run) -> tuple[float, ...]:
    """The roofline's a, b, g0, g1, g3. A pass that holds both kinds of work pays its constant once, in g0."""
    told = roofline(run).polynomial(run.kv_tokens)
    return LEAST, told.prefill[1], told.decode[0], told.decode[1], told.decode[3]


def _vector(times: Sequence[Timed]) -> np.ndarray:
    return np.array([t.ttft for t in times] + [t.tpot for t in times])


def errors(ours: Sequence[Timed], truth: Sequence[Timed]) -> dict[str, float]:
    """Relative errors of mean and 99th percentile."""
    found = {}
    for number, name in enumerate(Timed._fields):
        mine, theirs = np.array([t[number] for t in ours]), np.array([t[number] for t in truth])
        found[f"{name}_mean"] = round(float(mine.mean() / theirs.mean()) - 1, 4)
        found[f"{name}_p99"] = round(float(np.percentile(mine, 99) / np.percentile(theirs, 99)) - 1, 4)
    return found


def across(source: Run, coefficients: Sequence[float], target: Run) -> dict[str, float]:
    """One run's coefficients, scaled by what the rooflines say of both, on another run."""
    before, after = (roofline(run).polynomial(run.kv_tokens) for run in (source, target))
    ratios = (
        1.0,
        after.prefill[1] / before.prefill[1],
        after.decode[0] / before.decode[0],
        after.decode[1] / before.decode[1],
        after.decode[3] / before.decode[3],
    )
    scaled = [value * ratio for value, ratio in zip(coefficients, ratios, strict=True)]
    arrivals, truth = measured(target)
    return errors(simulated(target, arrivals, scaled), truth)


def roofline(run: Run) -> Roofline:
    """A run's replica by the catalogue's figures."""
    found = known(run.model)
    assert found is not None, run.model
    rates = machine(ACCELERATORS[run.accelerator].spec) if run.accelerator in ACCELERATORS else RTX_4090
    return Roofline(rates, work(found[0].shape, "none", "none"), Layout(tensor=run.accelerators))


def compare() -> dict[str, Any]:
    """All of it."""
    rows: list[dict[str, Any]] = []
    fitted = {}
    for run in RUNS:
        arrivals, truth = measured(run)
        fitted[run.name] = calibrated(run, slice(0, None, 2))
        judged = errors(simulated(run, arrivals, fitted[run.name])[1::2], truth[1::2])
        rows.append(
            {"run": run.name, **judged, "over": over(judged), "fit": [float(f"{c:.4g}") for c in fitted[run.name]]}
        )
    carried = [
        {"from": source.name, "to": target.name, **across(source, fitted[source.name], target)}
        for source in RUNS
        for target in RUNS
        if source is not target
    ]
    worst = max(float(row["over"]) for row in rows)
    return {"name": "vllm-runs", "ok": worst <= 1, "worst": worst, "limit": 1.0, "rows": rows, "across": carried,
            "unit": "error over its limit, 5 % of means and 10 % of p99"}  # fmt: skip


def over(found: dict[str, float]) -> float:
    """The worst error, over what is allowed of it."""
    return round(max(abs(value) / (TAILS if name.endswith("p99") else MEANS) for name, value in found.items()), 2)

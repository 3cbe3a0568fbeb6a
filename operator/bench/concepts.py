"""The plots of docs/concepts.md: `python -m bench.concepts`, in `operator/`, or `make concepts`.

Each is made by the simulator's own parts on one engine (a model of the 32-billion class, `evidence/engines.py`), and written twice:
its data in docs/concepts/plots.json, and the picture made from them.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from steelyard.decide.queue.judge import Objectives
from steelyard.sim.oracle import needs, schedule
from steelyard.sim.plots import Axis, Series, image
from steelyard.sim.run import Result, simulate
from steelyard.sim.scenario import DECODE, PREFILL, Scenario
from steelyard.sim.synthetic import Load, steady

from bench.evidence import data
from bench.evidence.engines import CLASS_32B, DYNAMO

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "concepts"
TTFT, TPOT = 2.0, 0.05
SECONDS = 120.0
START, BIN = 60.0, 5.0


class Picture(NamedTuple):
    """One plot's data."""

    title: str
    series: Sequence[Series]
    across: Axis
    up: Axis


def attainment() -> Picture:
    """What share of requests has its first token by when, at three rates."""
    lines = [
        Series(f"{rate:g} req/s", [(x, y) for x, y in _thin(_play(rate, 3, 5).record.ttft.cumulative()) if x < 20])
        for rate in (27, 34, 38)
    ]
    lines.append(Series("objective", [(TTFT, 0.0), (TTFT, 1.0)]))
    return Picture("Three prefill and five decode replicas: when the first token is there", lines,
                   Axis("seconds to the first token", logarithmic=True), Axis("share of requests", least=0, most=1))  # fmt: skip


def goodput() -> Picture:
    """Requests served, and those within the objectives, as the rate rises."""
    rates = [12.0, 18.0, 24.0, 28.0, 32.0, 36.0, 40.0, 46.0, 52.0]
    played = {ttft: [(rate, _play(rate, 3, 5, ttft)) for rate in rates] for ttft in (2.0, 0.5)}
    lines = [
        Series("completed", [(rate / 8, result.record.completed / SECONDS / 8) for rate, result in played[2.0]]),
        *(Series(f"within TTFT {ttft:g} s, TPOT 50 ms", [(rate / 8, result.record.met / SECONDS / 8) for rate, result in runs])
          for ttft, runs in played.items()),
    ]  # fmt: skip
    return Picture("Throughput is not goodput", lines, Axis("requests/s that arrive, per accelerator", least=1),
                   Axis("requests/s per accelerator", least=0))  # fmt: skip


def capacity() -> Picture:
    """Seconds of a decode step by the sequences in it."""
    counts = [1, *range(8, 257, 8)]
    lines = [
        Series(f"context of {context} tokens", [(float(n), round(1000 * CLASS_32B.step_seconds(n, n * context), 3)) for n in counts
                                                if n * context <= CLASS_32B.kv_tokens])
        for context in (500, 2000, 8000)
    ]  # fmt: skip
    lines.append(Series("objective", [(1.0, 1000 * TPOT), (256.0, 1000 * TPOT)]))
    return Picture("A decode replica: how many sequences keep TPOT", lines, Axis("sequences at once", least=0),
                   Axis("ms of a step", least=0))  # fmt: skip


def prefill() -> Picture:
    """Prompt tokens per second by the size of a pass."""
    sizes = [2**power for power in range(6, 15)]
    lines = [
        Series(name, [(float(n), round(n / engine.prefill_seconds(n))) for n in sizes])
        for name, engine in (("32-billion class", CLASS_32B), ("Dynamo's mock engine", DYNAMO))
    ]
    return Picture("A prefill replica: tokens per second by the size of a pass", lines,
                   Axis("prompt tokens in one pass", logarithmic=True), Axis("prompt tokens per second", least=0))  # fmt: skip


def ratio() -> Picture:
    """Attainment of every ratio of eight replicas, for three mixes."""
    mixes = (
        ("long prompts: 4000 + 100", 18.0, 4000, 100),
        ("1000 + 200", 46.0, 1000, 200),
        ("long answers: 300 + 800", 32.0, 300, 800),
    )
    lines = [
        Series(
            name,
            [
                (float(p), round(_play(rate, p, 8 - p, load=Load(rate, prompt, answer)).attainment, 4))
                for p in range(1, 8)
            ],
        )
        for name, rate, prompt, answer in mixes
    ]
    return Picture("Eight replicas: the best ratio follows the mix", lines, Axis("prefill replicas of eight"),
                   Axis("attainment", least=0, most=1))  # fmt: skip


def oracle() -> Picture:
    """What prefill needs over six minutes of bursts, and what the oracle would run."""
    work = [0.0] * int(350 / BIN + 1)
    for arrival in data.azure_code(10.0):
        work[min(int(arrival.at / BIN), len(work) - 1)] += arrival.prompt / (DYNAMO.peak_prefill_rate() * (BIN + 0.5))
    need = needs(work, 1)
    lines = [Series("needed", _steps(need), "step")]
    lines += [
        Series(f"the oracle, starts of {start:g} s", _steps(schedule(need, BIN, start)), "step")
        for start in (10.0, START)
    ]
    return Picture("Bursts of Azure's code trace: what the oracle runs", lines,
                   Axis("seconds", least=0), Axis("prefill replicas", least=0))  # fmt: skip


PICTURES: Mapping[str, Callable[[], Picture]] = {
    "attainment": attainment,
    "goodput": goodput,
    "capacity": capacity,
    "prefill": prefill,
    "ratio": ratio,
    "oracle": oracle,
}
CHEAP = ("capacity", "prefill", "oracle")  # which a test may compute again


def _play(rate: float, reading: int, writing: int, ttft: float = TTFT, load: Load | None = None) -> Result:
    scenario = Scenario(
        engine=CLASS_32B, objectives=Objectives(ttft, TPOT), initial={PREFILL: reading, DECODE: writing}
    )
    return simulate(scenario, steady(load or Load(rate, 1000, 200), SECONDS, seed=1))


def _thin(points: Sequence[tuple[float, float]], most: int = 80) -> list[tuple[float, float]]:
    every = max(1, len(points) // most)
    return [(float(f"{x:.4g}"), round(y, 4)) for x, y in [*points[::every], points[-1]]]


def _steps(values: Sequence[int]) -> list[tuple[float, float]]:
    return [(number * BIN, float(value)) for number, value in enumerate(values)]


def told(picture: Picture) -> dict[str, Any]:
    """A picture as plain data."""
    series = [{"name": s.name, "kind": s.kind, "points": [list(point) for point in s.points]} for s in picture.series]
    axes = {name: {"title": a.title, "logarithmic": a.logarithmic, "least": a.least, "most": a.most}
            for name, a in (("across", picture.across), ("up", picture.up))}  # fmt: skip
    return {"title": picture.title, "series": series, **axes}


def svg(content: Mapping[str, Any]) -> str:
    """Draw plain data."""
    series = [Series(s["name"], [(x, y) for x, y in s["points"]], s["kind"]) for s in content["series"]]
    return image(content["title"], series, Axis(**content["across"]), Axis(**content["up"]))


def main() -> int:
    """Make those that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m bench.concepts", description="The plots of docs/concepts.md.")
    parser.add_argument("names", nargs="*", choices=[*PICTURES, []], help="plots; default: all")
    options = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    file = FOLDER / "plots.json"
    known: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    for name in options.names or PICTURES:
        known[name] = told(PICTURES[name]())
        (FOLDER / f"{name}.svg").write_text(svg(known[name]))
    lines = [f"{json.dumps(name)}: {json.dumps(known[name])}" for name in sorted(known)]
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

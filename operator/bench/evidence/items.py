"""What the evidence consists of, and how an item is run and measured."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from bench.evidence import (
    ablation,
    distserve,
    dynamo,
    dynamo_inside,
    floors,
    fluid,
    frontier,
    holdout,
    oracle,
    policies,
    robustness,
    silicon,
    speed,
    startups,
    vllm,
)


class Item(NamedTuple):
    """A piece of evidence; `pinned` ones are held to figures that others published or measured. What is not `judged` is reported
    whatever it is: its `ok` only says that it ran."""

    run: Callable[[], dict[str, Any]]
    pinned: bool
    words: str
    judged: bool = True


ITEMS = {
    "distserve": Item(distserve.sweep, True, "35 cells of DistServe's own simulator"),
    "vllm-runs": Item(vllm.compare, True, "three measured runs of vLLM, calibrated on one half, judged on the other"),
    "silicon": Item(silicon.compare, True, "the roofline against 35 measured deployments, and its bound"),
    "dynamo-static": Item(dynamo.sweep, True, "eight static ratios of Dynamo 1.4.2's replay"),
    "dynamo-inside": Item(dynamo_inside.compare, False, "our law inside Dynamo 1.4.2's own replay (installs it)"),
    "speed": Item(speed.measure, False, "requests simulated per CPU-second, and memory over hours of trace"),
    "oracle": Item(oracle.distance, False, "accelerator-hours of the law over those of the oracle"),
    "fluid": Item(fluid.compare, False, "two weeks and a fortnight in rates: the law, five rivals, the oracle"),
    "floor-five-fixed": Item(floors.five_fixed, False, "five fixed replicas behind the gateway"),
    "floor-traces": Item(floors.traces, False, "the law on five traces, one default"),
    "floor-mixes": Item(floors.mixes, False, "role changes against the best static ratio, fixed budget"),
    "floor-moving": Item(floors.moving, False, "moving mixes with scaling"),
    "startups": Item(
        startups.compare,
        False,
        "the five traces with starts of 10 to 600 s, three draws, over the oracle",
        judged=False,
    ),
    "holdout": Item(
        holdout.compare, False, "the law on nine loads that its constants were not chosen on", judged=False
    ),
    "ablation": Item(ablation.compare, False, "the law with one part taken out at a time", judged=False),
    "frontier": Item(
        frontier.compare, False, "the law beside five rivals with eight draws of settings each, behind our gateway"
    ),
    "policies": Item(policies.compare, False, "the same behind three other routers", judged=False),
    "robustness": Item(
        robustness.compare, False, "one setting each: starts of 10 to 600 s, four routers, nine other loads"
    ),
}


def measured(name: str) -> dict[str, Any]:
    """Run an item here. Adds the CPU-seconds that it took, its children's too, and the most memory of this process."""
    before = _cpu()
    figures = ITEMS[name].run()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return {**figures, "cpu_seconds": round(_cpu() - before, 1), "peak_mib": peak}


def alone(name: str) -> dict[str, Any]:
    """Run an item in a process of its own. Raises RuntimeError with what it wrote where it does not end well."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.evidence", name], stdout=subprocess.PIPE, text=True, check=False
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise RuntimeError(
            f"evidence {name} ended with {done.returncode} and no figures; run it alone with ONLY={name}"
        )
    figures: dict[str, Any] = json.loads(lines[-1])
    return figures


def _cpu() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system

"""`python -m bench.evidence [NAME…]`, in `operator/`, or `make evidence [ONLY=NAME]`: one JSON line of figures an item.

Each line has `name`, `ok` and `worst`. `--list` names them; without names, those marked quick run. Exit status 1 if an
item is not ok.
"""

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from bench.evidence import distserve, dynamo, dynamo_inside, floors, frontier, oracle, robustness, silicon, speed, vllm


class Item(NamedTuple):
    """A piece of evidence; `quick` ones take seconds."""

    run: Callable[[], dict[str, Any]]
    quick: bool
    words: str


ITEMS = {
    "distserve": Item(distserve.sweep, True, "35 cells of DistServe's own simulator"),
    "vllm-runs": Item(vllm.compare, True, "three measured runs of vLLM, calibrated on one half, judged on the other"),
    "silicon": Item(silicon.compare, True, "the roofline against 35 measured deployments, and its bound"),
    "dynamo-static": Item(dynamo.sweep, True, "eight static ratios of Dynamo 1.4.2's replay"),
    "dynamo-inside": Item(dynamo_inside.compare, False, "our law inside Dynamo 1.4.2's own replay (installs it)"),
    "floor-five-fixed": Item(floors.five_fixed, True, "five fixed replicas behind the gateway"),
    "floor-traces": Item(floors.traces, True, "the law on five traces, one default"),
    "floor-mixes": Item(floors.mixes, False, "role changes against the best static ratio, fixed budget"),
    "floor-moving": Item(floors.moving, False, "moving mixes with scaling"),
    "frontier": Item(frontier.compare, False, "the law beside five rivals, each with eight settings"),
    "robustness": Item(
        robustness.compare, False, "one setting each: starts of 10 to 600 s, three draws, three routers"
    ),
    "oracle": Item(oracle.distance, False, "accelerator-hours of the law over those of the oracle"),
    "startups": Item(floors.startups, False, "the five traces with starts of 10, 180 and 600 s"),
    "speed": Item(speed.measure, True, "requests simulated per CPU-second"),
}


def main() -> int:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.evidence", description="Evidence, one JSON line an item.")
    parser.add_argument("names", nargs="*", choices=[*ITEMS, []], help="items; default: the quick ones")
    parser.add_argument("--all", action="store_true", help="every item, the long ones too")
    parser.add_argument("--list", action="store_true", help="name the items and what they show")
    options = parser.parse_args()
    if options.list:
        for name, item in ITEMS.items():
            print(f"{name:16} {'quick' if item.quick else 'long':6} {item.words}")
        return 0
    ok = True
    for name in options.names or [name for name, item in ITEMS.items() if item.quick or options.all]:
        figures = ITEMS[name].run()
        ok &= bool(figures["ok"])
        print(json.dumps(figures), flush=True)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())

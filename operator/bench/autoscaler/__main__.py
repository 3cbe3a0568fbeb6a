"""`python -m bench.autoscaler`: the cost of a tick for several sizes of fleet, written to docs/benchmarks/autoscaler.{json,md}."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from bench.autoscaler.measure import WARM_TICKS, Cost, measure
from bench.autoscaler.series import Fleet
from e2e.cache import REPOSITORY
from e2e.cluster import build
from e2e.cluster.programs import PROMETHEUS, PROMTOOL

RESULTS = REPOSITORY / "docs" / "benchmarks"
SIZES = (50, 250, 1000)
PODS = 20
IMAGE = {"MALLOC_ARENA_MAX": "1"}  # as the operator's image has it


def main() -> int:
    """Measure each size in a process of its own, so that memory is its own too; print and write."""
    parser = argparse.ArgumentParser(prog="bench.autoscaler", description=__doc__)
    parser.add_argument(
        "--services", type=int, nargs="+", default=list(SIZES), help="sizes of fleet; default %(default)s"
    )
    parser.add_argument("--ticks", type=int, default=20, help="ticks that are counted; default %(default)s")
    parser.add_argument("--no-write", action="store_true", help="leave docs/benchmarks alone")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    programs = build.ensure(Console(stderr=True), [PROMETHEUS, PROMTOOL])
    if given.one:
        print(json.dumps(asdict(measure(Fleet(given.services[0], PODS), given.ticks, programs))))
        return 0
    costs = []
    for services in given.services:
        command = [
            sys.executable,
            "-m",
            "bench.autoscaler",
            "--one",
            "--services",
            str(services),
            "--ticks",
            str(given.ticks),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **IMAGE})
        if done.returncode:
            print(done.stderr, file=sys.stderr)
            return 1
        costs.append(Cost(**json.loads(done.stdout.splitlines()[-1])))
        print(costs[-1], file=sys.stderr)
    text = page(costs)
    print(text)
    if not given.no_write:
        write(RESULTS, costs, text)
    return 0


def write(folder: Path, costs: list[Cost], text: str) -> None:
    """Write both forms of the result."""
    (folder / "autoscaler.json").write_text(json.dumps([asdict(cost) for cost in costs], indent=1) + "\n")
    (folder / "autoscaler.md").write_text(text)


def page(costs: list[Cost]) -> str:
    """The result for people."""
    costly = [
        f"| {c.services:,} | {c.pods:,} | {c.series:,} | {c.queries} | {c.cpu_seconds:.2f} | {c.cpu_per_1000_pods:.3f} | "
        f"{c.prometheus_cpu_seconds:.2f} | {c.wall_seconds:.2f} |"
        for c in costs
    ]
    large = [
        f"| {c.pods:,} | {c.bare_mib:.0f} | {c.views_mib:.0f} | {c.remembered_mib:.0f} | {c.kept_bytes_per_pod:,.0f} | "
        f"{c.tick_mib:.0f} | {' → '.join(f'{one:.0f}' for one in c.quarters_mib)} |"
        for c in costs
    ]
    return "\n".join(
        [
            "# What a tick of the autoscaler costs",
            "",
            f"Measured {datetime.now(UTC):%Y-%m-%d} on {os.cpu_count()} cores, {costs[0].ticks} ticks each after {WARM_TICKS} "
            "to warm up (`python -m bench.autoscaler`): a real Prometheus over a store of half a minute of the series that are "
            "used, the real client, joins and law, mode Recommend. Not in it: asking gateways over the network (their answers "
            "are read from text), and writes to the API server. CPU seconds are of a tick; wall time is of a machine that had "
            "other work.",
            "",
            "| services | engine pods | series | queries a tick | CPU s | CPU s per 1,000 pods | Prometheus CPU s | wall s |",
            "|---|---|---|---|---|---|---|---|",
            *costly,
            "",
            "The wall time is the reaction: a tick reads what is measured and carries out what it decides before it ends, so from "
            "a sample that Prometheus holds to the patch it takes one tick of waiting at most, and this.",
            "",
            "## Memory, in MiB",
            "",
            "Answers are read row by row into columns of eight bytes a number, one answer at a time, and the gateways' windows "
            "some services ahead of the one that is decided for. What stays is a snapshot of the fleet; it does not grow with "
            "ticks.",
            "",
            "| engine pods | process alone | + views of the fleet | + remembered | bytes a pod that stay "
            "| + at the peak of a tick | after each quarter of the ticks |",
            "|---|---|---|---|---|---|---|",
            *large,
            "",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())

"""The command: bring up an API server, measure every fleet size, write what was found."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from bench.operator.control_plane import control_plane
from bench.operator.measure import AtSize, at_size
from bench.operator.process import imported_mib
from bench.operator.report import as_json, as_page, conditions
from e2e.cache import REPOSITORY
from e2e.errors import ToolError

RESULTS = REPOSITORY / "docs" / "benchmarks"


def main(arguments: Sequence[str]) -> int:
    """Exit 0 with results written, 1 when something is missing or went wrong (then nothing is written)."""
    options = _parser().parse_args(arguments)
    console = Console(stderr=True)
    try:
        sizes = measure(sorted(set(options.sizes)), options.per_namespace, console)
        where = conditions(options.per_namespace, imported_mib())
    except ToolError as error:
        console.print(f"error: {error}", style="red", markup=False)
        return 1
    page = as_page(where, sizes)
    print(page)
    if options.write:
        options.write.mkdir(parents=True, exist_ok=True)
        (options.write / "operator.json").write_text(json.dumps(as_json(where, sizes), indent=1) + "\n")
        (options.write / "operator.md").write_text(page)
        console.print(f"written: {options.write}/operator.md and operator.json")
    return 0


def measure(counts: Sequence[int], per_namespace: int, console: Console) -> list[AtSize]:
    """Every size in turn on one API server; a larger fleet keeps the services of the smaller."""
    found: list[AtSize] = []

    def say(text: str) -> None:
        console.print(text, highlight=False)

    with control_plane(console) as plane, tempfile.TemporaryDirectory(prefix="steelyard-bench-") as name:
        for count in counts:
            known = found[-1].services if found else 0
            found.append(at_size(plane, count, known, per_namespace, Path(name), say))
            say(json.dumps(asdict(found[-1])))  # what is known, should a larger size fail
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench.operator", description="What the operator costs on a real API server.")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 100, 1000], help="services (default %(default)s)")
    parser.add_argument(
        "--per-namespace",
        type=int,
        default=1000,
        help="services that share a namespace (default %(default)s: the worst)",
    )
    parser.add_argument("--write", type=Path, default=RESULTS, help="folder for operator.json and operator.md")
    parser.add_argument("--no-write", dest="write", action="store_const", const=None, help="only print")
    return parser

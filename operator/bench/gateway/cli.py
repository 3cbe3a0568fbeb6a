"""The command: measure every subject in turn, repeat, write what was found."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.gateway import compiled, router
from bench.gateway.measure import Programs, Repeat, repeat
from bench.gateway.processes import Cores, session_first
from bench.gateway.report import as_json, as_page, conditions
from bench.gateway.scenarios import Scenario, scenarios
from bench.gateway.subjects import Ports, Subject, direct, steelyard, vllm_router
from e2e.cache import REPOSITORY
from e2e.errors import ToolError

RESULTS = REPOSITORY / "docs" / "benchmarks"
SUBJECTS: dict[str, Callable[[Ports, Path], Subject]] = {
    "steelyard": steelyard,
    "vllm-router": lambda ports, folder: vllm_router(ports),
    "direct": lambda ports, folder: direct(),
}


def main(arguments: Sequence[str]) -> int:
    """Exit 0 with results written; 1 when a repeat was unsound (then nothing is written) or something is missing."""
    options = _parser().parse_args(arguments)
    console = Console(stderr=True)
    try:
        todo = scenarios(options.seconds)
        with session_first():
            repeats = measure(options.subjects, todo, options.repeats, console)
    except ToolError as error:
        console.print(f"error: {error}", style="red", markup=False)
        return 1
    where = conditions(options.repeats, options.seconds, Cores.of_this_machine(), router.VERSION)
    page = as_page(where, repeats, todo)
    print(page)
    unsound = [f"{one.subject}: {fault}" for one in repeats for fault in one.faults]
    for fault in unsound:
        console.print(f"unsound: {fault}", style="red", markup=False)
    if unsound:
        return 1
    if options.write:
        options.write.mkdir(parents=True, exist_ok=True)
        (options.write / "gateway.json").write_text(json.dumps(as_json(where, repeats), indent=1) + "\n")
        (options.write / "gateway.md").write_text(page)
        console.print(f"written: {options.write}/gateway.md and gateway.json")
    return 0


def measure(names: Sequence[str], todo: tuple[Scenario, ...], count: int, console: Console) -> list[Repeat]:
    """Every subject `count` times, taking turns, so that what changes on the machine meanwhile meets them all."""
    programs = Programs(*compiled.programs())
    cores = Cores.of_this_machine()
    if "vllm-router" in names:
        router.installed()
    found = []
    columns = (TextColumn("{task.description:<28}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("", total=count * len(names) * len(todo))
        for turn in range(count):
            for name in names:

                def step(subject: Subject, scenario: Scenario, turn: int = turn) -> None:
                    progress.update(bar, description=f"{turn + 1}. {subject.name}: {scenario.name}")
                    progress.advance(bar)

                if not console.is_terminal:
                    console.print(f"{turn + 1} of {count}: {name}", highlight=False)
                found.append(repeat(SUBJECTS[name], todo, programs, cores, step))
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bench.gateway", description="The gateway against vllm-router and no gateway."
    )
    parser.add_argument("--repeats", type=int, default=3, help="of every subject; medians count (default %(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=4.0, help="measured window of each scenario (default %(default)s)"
    )
    parser.add_argument("--subjects", nargs="+", choices=list(SUBJECTS), default=list(SUBJECTS), help="default: all")
    parser.add_argument("--write", type=Path, default=RESULTS, help="folder for gateway.json and gateway.md")
    parser.add_argument("--no-write", dest="write", action="store_const", const=None, help="only print")
    return parser

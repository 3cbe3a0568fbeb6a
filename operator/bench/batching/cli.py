"""The command: play every strategy at every rate, write what was found."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from steelyard_engine.batching import STRATEGIES
from steelyard_engine.settings import make_backend, read_arguments

from bench.batching.figures import Figures, figures
from bench.batching.load import requests
from bench.batching.play import play
from bench.batching.report import Conditions, as_json, as_page, conditions, plot
from bench.engine.bare import silence
from e2e.cache import REPOSITORY
from e2e.errors import ToolError
from e2e.images.wheels import weights

RESULTS = REPOSITORY / "docs" / "benchmarks"
RATES = (0.2, 0.35, 0.5, 0.65)  # requests per second: from little to more than the model can do
SEQUENCES, BATCH_TOKENS = 8, 64  # a step of 256 tokens takes two seconds on one core, which no answer can wait for
SEED = 3


def main(arguments: Sequence[str]) -> int:
    """Exit 0 with results written, 1 when something is missing or went wrong (then nothing is written)."""
    options = _parser().parse_args(arguments)
    console = Console(stderr=True)
    try:
        found = measure(options.requests, options.rates, console)
    except ToolError as error:
        console.print(f"error: {error}", style="red", markup=False)
        return 1
    about = conditions(options.requests, SEQUENCES, BATCH_TOKENS)
    page = as_page(found, about)
    print(page)
    if options.write:
        write(options.write, found, about, page)
        console.print(f"written: {options.write}/batching.md, .json and .svg")
    return 0


def measure(count: int, rates: Sequence[float], console: Console) -> list[Figures]:
    """Every strategy at every rate, on one loaded model and one core."""
    model = weights()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    words = ["--backend", "llama", "--served-name", "bench", "--model", str(model), "--max-sequences", str(SEQUENCES)]
    said = silence()
    backend = make_backend(read_arguments([*words, "--max-batch-tokens", str(BATCH_TOKENS)]))
    backend.load()
    play(backend, "chunked", SEQUENCES, BATCH_TOKENS, requests(4, 10.0, SEED + 1))  # warms all that is lazy
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    found = []
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=len(rates) * len(STRATEGIES))
        for rate in rates:
            for name in STRATEGIES:
                bar.update(task, description=f"{name} at {rate:g}/s")
                asked = requests(count, rate, SEED)
                found.append(figures(name, rate, asked, play(backend, name, SEQUENCES, BATCH_TOKENS, asked)))
                bar.advance(task)
    backend.close()
    del said  # llama.cpp writes to it until here
    return found


def write(folder: Path, found: Sequence[Figures], about: Conditions, page: str) -> None:
    """The page, the figures and the plot."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "batching.json").write_text(json.dumps(as_json(found, about), indent=1) + "\n")
    (folder / "batching.svg").write_text(plot(found))
    (folder / "batching.md").write_text(page)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench.batching", description="Four batching strategies side by side.")
    parser.add_argument("--requests", type=int, default=40, help="of each run (default %(default)s)")
    parser.add_argument(
        "--rates", type=float, nargs="+", default=RATES, help="requests per second (default %(default)s)"
    )
    parser.add_argument("--write", type=Path, default=RESULTS, help="folder for batching.md, .json and .svg")
    parser.add_argument("--no-write", dest="write", action="store_const", const=None, help="only print")
    return parser

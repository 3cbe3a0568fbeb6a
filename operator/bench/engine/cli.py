"""The command: measure speed, hand-off and start, write what was found."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from bench.engine.bare import Bare, silence
from bench.engine.handoff import handoffs
from bench.engine.report import Result, as_json, as_page, result
from bench.engine.served import served
from bench.engine.start import starts
from bench.engine.turns import turns
from e2e.cache import REPOSITORY
from e2e.errors import ToolError
from e2e.images.wheels import weights

RESULTS = REPOSITORY / "docs" / "benchmarks"
_BARE_TOKENS, _BARE_SEQUENCES = 4096, 8


def main(arguments: Sequence[str]) -> int:
    """Exit 0 with results written, 1 when something is missing or went wrong (then nothing is written)."""
    options = _parser().parse_args(arguments)
    console = Console(stderr=True)
    try:
        found = asyncio.run(_measure(options.rounds, console))
    except ToolError as error:
        console.print(f"error: {error}", style="red", markup=False)
        return 1
    page = as_page(found)
    print(page)
    if options.write:
        options.write.mkdir(parents=True, exist_ok=True)
        (options.write / "engine.json").write_text(json.dumps(as_json(found), indent=1) + "\n")
        (options.write / "engine.md").write_text(page)
        console.print(f"written: {options.write}/engine.md and engine.json")
    return 0


async def _measure(rounds: int, console: Console) -> Result:
    def say(text: str) -> None:
        console.print(text, highlight=False)

    model = weights()
    core = min(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    started = starts(model, rounds)
    said = silence()
    handed = await handoffs(model, rounds)
    say("starts and hand-offs measured")
    async with served(model, "reproducible") as engine, served(model, "fast") as fast:
        defaults, settings = (Bare(model, _BARE_TOKENS, _BARE_SEQUENCES, ours) for ours in (False, True))
        taken = await turns(engine, fast, defaults, settings, rounds, say)
    del said  # llama.cpp writes to it until here
    return result(taken, handed, started, core)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench.engine", description="The engine against a bare llama.cpp loop.")
    parser.add_argument("--rounds", type=int, default=5, help="of everything; medians count (default %(default)s)")
    parser.add_argument("--write", type=Path, default=RESULTS, help="folder for engine.json and engine.md")
    parser.add_argument("--no-write", dest="write", action="store_const", const=None, help="only print")
    return parser

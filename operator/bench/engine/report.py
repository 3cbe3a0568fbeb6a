"""The result as JSON for programs and as a page for people."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from bench.engine import figures
from bench.engine.figures import GOAL, Speed
from bench.engine.seen import Handoff, Start, Turn
from bench.engine.turns import WORKS


@dataclass(frozen=True)
class Result:
    """All that was measured, and where."""

    turns: Sequence[Turn]
    handoffs: Sequence[Handoff]
    starts: Sequence[Start]
    measured: str
    core: int
    load_average: float


def result(turns: Sequence[Turn], handoffs: Sequence[Handoff], starts: Sequence[Start], core: int) -> Result:
    """Put together what was measured just now."""
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return Result(turns, handoffs, starts, now, core, round(os.getloadavg()[2], 1))


def as_json(found: Result) -> dict[str, Any]:
    """Everything: conditions, figures, and what was measured as it was."""
    speeds = figures.speeds(found.turns)
    return {
        "conditions": {
            "measured": found.measured,
            "core": found.core,
            "load_average": found.load_average,
            "kernel": platform.release(),
            "python": platform.python_version(),
            "llama-cpp-python": version("llama-cpp-python"),
        },
        "speed": [asdict(one) | {"reached": one.reached, "reached_fast": one.reached_fast} for one in speeds],
        "handoff": figures.handoff(found.handoffs),
        "start": figures.start(found.starts),
        "turns": [asdict(turn) for turn in found.turns],
        "handoffs": [asdict(one) for one in found.handoffs],
        "starts": [asdict(one) for one in found.starts],
    }


def as_page(found: Result) -> str:
    """A page in Markdown: the tables, then how it was measured."""
    rows = "\n".join(_row(one) for one in figures.speeds(found.turns))
    works = "\n".join(
        f"- **{w.name}**: {w.batch} × {w.prompt} tokens" + (f", then {w.steps} tokens of each" if w.steps else "")
        for w in WORKS
    )
    return _PAGE.format(
        rows=rows, works=works, goal=GOAL, rounds=len(found.turns) // len(WORKS), measured=found.measured, core=found.core,
        load=found.load_average, kernel=platform.release(), python=platform.python_version(),
        llama=version("llama-cpp-python"), handoffs=len(found.handoffs), starts=len(found.starts),
        **figures.handoff(found.handoffs), **figures.start(found.starts),
    )  # fmt: skip


def _row(one: Speed) -> str:
    ours, fast = ("✓" if reached else "missed" for reached in (one.reached, one.reached_fast))
    return (
        f"| {one.work} | {one.engine:,.0f} | {one.fast:,.0f} | {one.defaults:,.0f} | {one.to_defaults:.2f}× {ours} "
        f"| {one.fast_to_defaults:.2f}× {fast} | ≥ {GOAL:g}× | {one.settings:,.0f} | {one.to_settings:.2f}× |"
    )


_PAGE = """# Engine: speed, hand-off, start

Written by `make bench`; all numbers are in [engine.json](engine.json). SmolLM2-135M (Q4_1), one thread, tokens per CPU-second.

| | engine | engine, fast | llama.cpp, its defaults | engine / defaults | fast / defaults | goal | our settings | engine / these |
|---|---:|---:|---:|---:|---:|---:|---:|---:|
{rows}

*Fast* is `--numerics fast`, *our settings* are llama.cpp with those of the engine's default.

By default a text does not depend on load ([one-text.md](../design/one-text.md)). The last two columns tell the engine's own cost
(scheduler, sampling, text, threads) from the price of the settings that this takes: micro-batches of 32 rows forgo llama.cpp's
tiled attention, which starts at 64, and that is felt where one prompt alone is computed. With `--numerics fast` the promise and
its price are given up.

| a hand-off of 1,000 tokens | |
|---|---:|
| bytes | {megabytes:.1f} MB |
| serialize: copy out of the cache, checksum | {serialize_ms:.1f} ms |
| move: HTTP over loopback, both ends | {move_ms:.1f} ms |
| restore: check, copy into the cache | {restore_ms:.1f} ms |
| computing the tokens instead | {compute_ms:,.0f} ms |
| all steps / computing | {share_of_compute:.3f} |

| a start | |
|---|---:|
| process start to Ready | {seconds:.1f} s |
| CPU of that | {cpu_seconds:.1f} s |
| CPU of a bare llama.cpp loop until it could compute | {bare_cpu_seconds:.1f} s |
| resident memory when Ready | {resident_mib:,.0f} MiB |

## How it was measured

{measured}, core {core} of a machine shared with other work (load average {load}), Linux {kernel}, Python {python},
llama-cpp-python {llama}. Times are CPU time of the whole process (of both ends for the hand-off), except "to Ready".

All four run in one process, with the same prompts of random words right after each other, {rounds} rounds, the order turned
round each time; ratios are taken within a round, and their median counts. The engines run as their server runs them, without HTTP:
else the defaults of the command line, scheduler, worker thread, sampling, text. Their prefix caches are full of earlier prompts,
as in use; the bare loops' caches are emptied each time.

{works}

Hand-offs: {handoffs}, between two contexts of one process, through the KV server and the puller of the engine. Starts:
{starts}, weights in the page cache, probed every 20 ms.
"""

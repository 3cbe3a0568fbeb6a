"""The result as JSON, as a page, and as a plot."""

from __future__ import annotations

import io
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from bench.batching.figures import TPOT, TTFT, Figures

COLOURS = {"static": "#d55e00", "dynamic": "#e69f00", "continuous": "#009e73", "chunked": "#0072b2"}
_PANELS = (("goodput", "requests/s within both objectives"), ("ttft_p95", "TTFT p95, s"), ("tpot_p95", "TPOT p95, s"))


@dataclass(frozen=True)
class Conditions:
    """How it was measured."""

    measured: str
    requests: int
    sequences: int
    batch_tokens: int
    load_average: float
    kernel: str
    python: str
    llama: str


def conditions(requests: int, sequences: int, batch_tokens: int) -> Conditions:
    """Of a run that has just ended."""
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    load = round(os.getloadavg()[2], 1)
    where = (platform.release(), platform.python_version(), version("llama-cpp-python"))
    return Conditions(now, requests, sequences, batch_tokens, load, *where)


def as_json(found: Sequence[Figures], about: Conditions) -> dict[str, Any]:
    """Everything."""
    return {
        "conditions": asdict(about),
        "objectives": {"ttft": TTFT, "tpot": TPOT},
        "runs": [asdict(one) for one in found],
    }


def as_page(found: Sequence[Figures], about: Conditions) -> str:
    """The page."""
    rows = "\n".join(
        f"| {one.rate:g} | {one.batching} | {one.tokens_per_second:.1f} | {one.ttft_p50:.2f} | {one.ttft_p95:.2f} |"
        f" {one.tpot_p50 * 1000:.0f} | {one.tpot_p95 * 1000:.0f} | {one.attained:.0%} | {one.goodput:.2f} |"
        for one in found
    )
    return f"""# Batching strategies side by side

Written by `make compare-batching`; the numbers are in [batching.json](batching.json). SmolLM2-135M (Q4_1) in the embedded
engine, one thread, {about.sequences} sequences and {about.batch_tokens} tokens of a step at most. Objectives: TTFT {TTFT:g} s,
TPOT {TPOT * 1000:g} ms; goodput counts the requests that met both.

![goodput, TTFT and TPOT by rate](batching.svg)

| requests/s | strategy | tokens/s | TTFT p50, s | p95 | TPOT p50, ms | p95 | attained | goodput, 1/s |
|---:|---|---:|---:|---:|---:|---:|---:|---:|
{rows}

## How it was measured

{about.measured}, one core of a machine shared with other work (load average {about.load_average}), Linux {about.kernel},
Python {about.python}, llama-cpp-python {about.llama}. Each run: the same {about.requests} requests, three quarters of them short
questions (32 to 96 tokens in, 16 to 48 out), a quarter documents (320 to 640 in, 4 to 12 out), Poisson arrivals, no shared
prefixes. The engine's own scheduler and llama.cpp run on a clock that advances by the CPU time of each step: other work on the
machine delays nothing, it only makes a step dearer by what it takes of the caches. A dynamic batch waits a second at most.
"""


def plot(found: Sequence[Figures]) -> str:
    """Three panels by rate, as SVG."""
    style: Any = {"svg.hashsalt": "steelyard", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(10, 3.2), layout="constrained")
        for axes, (name, title) in zip(figure.subplots(1, len(_PANELS)), _PANELS, strict=True):
            for strategy, colour in COLOURS.items():
                runs = [one for one in found if one.batching == strategy]
                axes.plot(
                    [one.rate for one in runs], [getattr(one, name) for one in runs], "o-", color=colour, label=strategy
                )
            axes.set_xlabel("requests/s")
            axes.set_title(title, loc="left", fontsize=9)
            axes.set_ylim(bottom=0)
            axes.grid(alpha=0.25)
        figure.axes[0].legend(frameon=False)
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return file.getvalue()

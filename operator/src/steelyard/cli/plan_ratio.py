"""`steelyard plan --profile`: the best ratio of a measured engine, as DistServe's sweep shows it."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from rich.table import Table

from steelyard.cli import flags
from steelyard.cli.plan_tables import table
from steelyard.decide.queue.judge import Objectives
from steelyard.sim import spec, trace
from steelyard.sim.engine import Batching
from steelyard.sim.page import STYLE
from steelyard.sim.plots import Axis, Series, plot
from steelyard.sim.sweep import Cell, best, sweep

MOST_REQUESTS = 5000
MOST_REPLICAS = 1000  # of all roles together


def ratio_cells(
    profile: Path,
    load: Path | None,
    total: int | None,
    rates: str | None,
    ttft: float | None,
    tpot: float | None,
    seed: int,
) -> list[Cell]:
    """Play every ratio. Raises ValueError that names the flag."""
    if load is None:
        raise ValueError("--profile needs --trace, whose requests are played")
    if total is None:
        raise ValueError("--profile needs --budget: the replicas that are shared out")
    flags.within("--budget", total, 2, MOST_REPLICAS)
    flags.objective("--ttft", ttft)
    flags.objective("--tpot", tpot)
    if rates is None:
        raise ValueError("--profile needs --rates, such as 4,8,12")
    try:
        wanted = [float(rate) for rate in rates.split(",")]
    except ValueError as failure:
        raise ValueError(f"--rates is {rates!r}; write requests per second, such as 4,8,12") from failure
    for rate in wanted:
        flags.above_zero("--rates", rate)
    engine, _ = spec.of_profile(profile, max_sequences=4096, max_batch_tokens=8192, batching=Batching.CHUNKED)
    requests = list(islice(trace.read(load), MOST_REQUESTS))
    return sweep(engine, total, wanted, requests, Objectives(ttft, tpot), seed=seed)


def rows_of(cells: Sequence[Cell]) -> tuple[list[float], list[tuple[str, list[Cell]]]]:
    """The rates, and the cells of each ratio in their order."""
    rates = sorted({cell.rate for cell in cells})
    ratios = sorted({(cell.prefill, cell.decode) for cell in cells})
    return rates, [
        (f"{p}:{d}", [c for r in rates for c in cells if (c.prefill, c.decode, c.rate) == (p, d, r)]) for p, d in ratios
    ]


def ratio_table(cells: Sequence[Cell], wanted: float) -> Table:
    """Attainment by ratio and rate; the best ratio is marked."""
    rates, rows = rows_of(cells)
    chosen = "{}:{}".format(*best(cells, wanted))
    columns = ("", "prefill:decode", *(f"{rate:g} req/s" for rate in rates))
    return table(
        columns, [("→" if name == chosen else " ", name, *(f"{c.both:.1%}" for c in own)) for name, own in rows], left=2
    )


def ratio_figures(cells: Sequence[Cell], wanted: float) -> dict[str, Any]:
    """The same as plain data."""
    found = best(cells, wanted)
    return {
        "best": f"{found[0]}:{found[1]}",
        "cells": [
            {
                "ratio": f"{c.prefill}:{c.decode}",
                "rate": c.rate,
                "ttft_met": round(c.ttft, 4),
                "tpot_met": round(c.tpot, 4),
                "attainment": round(c.both, 4),
            }
            for c in cells
        ],
    }


def ratio_page(cells: Sequence[Cell], wanted: float) -> str:
    """The same as an HTML page with a plot of each objective."""
    rates, rows = rows_of(cells)
    found = best(cells, wanted)
    plots = []
    for title, pick in (("Both objectives", "both"), ("TTFT", "ttft"), ("TPOT", "tpot")):
        lines = [
            Series(f"{rate:g} req/s", [(float(own[i].prefill), getattr(own[i], pick)) for _, own in rows])
            for i, rate in enumerate(rates)
        ]
        plots.append(plot(title, lines, Axis("prefill replicas"), Axis("share of requests", least=0, most=1)))
    head = "".join(f"<th>{rate:g} req/s</th>" for rate in rates)
    body = "".join(
        f"<tr><td>{name}</td>" + "".join(f"<td>{c.both:.1%}</td>" for c in own) + "</tr>" for name, own in rows
    )
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>Ratio</title><style>{STYLE}</style>"
        f"<h1>Best ratio {found[0]}:{found[1]}</h1><table><thead><tr><th>prefill:decode</th>{head}</tr></thead>"
        f'<tbody>{body}</tbody></table><div class="plots">{"".join(plots)}</div></html>\n'
    )

"""The result as JSON for programs and as a page for people."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.gateway.figures import FIGURES, Figure, Value, medians, ratio, reached
from bench.gateway.interpreter import interpreter
from bench.gateway.measure import Repeat
from bench.gateway.processes import Cores
from bench.gateway.scenarios import Scenario
from bench.gateway.subjects import DECODE, PREFILL


@dataclass(frozen=True)
class Conditions:
    """Where and how a result came to be."""

    measured: str
    machine: str
    kernel: str
    python: str
    versions: dict[str, str]
    cores: dict[str, int]
    repeats: int
    seconds: float


def conditions(repeats: int, seconds: float, cores: Cores, rival: str) -> Conditions:
    """Those of this machine, now."""
    names = ("steelyard", "uvloop", "httptools", "msgspec")
    return Conditions(
        measured=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        machine=f"{_processor()}, {os.cpu_count()} cores",
        kernel=platform.release(),
        python=interpreter().words,
        versions={**{name: version(name) for name in names}, "vllm-router": rival},
        cores=asdict(cores),
        repeats=repeats,
        seconds=seconds,
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def as_json(where: Conditions, repeats: Sequence[Repeat]) -> dict[str, Any]:
    """Everything: conditions, medians, ratios, and each repeat as it was."""
    found = medians(repeats)
    ratios = {figure.name: ratio(figure, found) for figure in FIGURES}
    return {
        "conditions": asdict(where),
        "medians": _rounded(found),
        "ratios": _rounded(ratios),
        "goals_reached": {figure.name: reached(figure, ratios[figure.name]) for figure in FIGURES if figure.goal},
        "repeats": [asdict(one) for one in repeats],
    }


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(inner) for name, inner in value.items()}
    return float(f"{value:.5g}") if isinstance(value, float) else value


def as_page(where: Conditions, repeats: Sequence[Repeat], todo: Sequence[Scenario]) -> str:
    """A page in Markdown: the table, then how it was measured."""
    found = medians(repeats)
    subjects = list(found)
    rows = [f"| | {' | '.join(subjects)} | ours / rival | goal |", "|---|" + "---:|" * (len(subjects) + 2)]
    rows += [_row(figure, found, subjects) for figure in FIGURES]
    averages = [one.load_average for one in repeats]
    others = [one.others for one in repeats if one.subject != "direct"]
    lags = [one.loads["arrivals"]["lag_p99_us"] / 1e3 for one in repeats]
    versions = ", ".join(f"{name} {number}" for name, number in where.versions.items() if number)
    asked = "\n".join(f"- **{s.name}**: {s.words}; {s.seconds:g} s measured after {s.warm:g} s" for s in todo)
    noise = (
        f"The machine's load average was {min(averages):.1f} to {max(averages):.1f} as repeats began. On the subject's core "
        f"other work took {100 * min(others, default=0):.0f} to {100 * max(others, default=0):.0f} % of the time. The client "
        f"sent at most {max(lags):.1f} ms late (p99 of a repeat)."
    )
    return _PAGE.format(
        table="\n".join(rows), repeats=where.repeats, measured=where.measured, machine=where.machine, kernel=where.kernel,
        python=where.python, versions=versions, asked=asked, noise=noise, prefill=PREFILL, decode=DECODE, **where.cores,
    )  # fmt: skip


def _row(figure: Figure, found: dict[str, dict[str, Value]], subjects: list[str]) -> str:
    share = ratio(figure, found)
    met = reached(figure, share)
    goal = "" if figure.goal is None else f"{'≥' if figure.more else '<'} {figure.goal:g}×"
    verdict = {None: "", True: " ✓", False: " missed"}[met]
    unit = f" ({figure.unit})" if figure.unit else ""
    values = [_number(found[subject][figure.name], figure.digits) for subject in subjects]
    compared = "" if share is None else f"{share:.2f}×"
    return f"| {figure.words}{unit} | {' | '.join(values)} | {compared} | {goal}{verdict} |"


def _number(value: Value, digits: int) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


_PAGE = """# Gateway: what a request and a chunk cost

Written by `make bench`; all numbers are in [gateway.json](gateway.json). Medians of {repeats}, all subjects in one run.

{table}

## How it was measured

{measured}, {machine}, Linux {kernel}, gateways on Python {python}; {versions}.

Every repeat starts a fresh engine stub and a fresh gateway. The subject is pinned to core {subject}, the stub to core
{engine}, the load client to core {client}, all at nice -20 in a session put before others; stub and client are C programs
that cost a small part of what they measure. The stub plays {prefill} prefill and {decode} decode engines and speaks the hand-off,
so that each request is two calls. `direct` is the client making both calls itself; what it needs to the first byte is taken off
the gateways' TTFT. Queue, order, prefix affinity, retries, estimates and metrics of our gateway are on; the rival routes round
robin. Prompts have 2,000 bytes, no two with the same beginning.

In this order, on each process:

{asked}

CPU is the process's own time, all threads, read at both ends of the measured window. A gateway that lags behind its engines
reads several chunks at once and passes them on in one write, which costs less for each: the table says how many. Memory per
stream is what the resident size grew by under the paced streams. A repeat counts only if every request was issued, answered
whole and accounted for, and every decode call carried the hand-off data of a prefill call.

{noise} CPU-seconds and ratios bear such company; times, above all p99, do less.
"""

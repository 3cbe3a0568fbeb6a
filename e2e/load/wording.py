"""A summary in words and tables, for the terminal and the report."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.table import Table

from e2e.load.spec import Spec
from e2e.load.summary import Spread, Summary


def asked(spec: Spec) -> dict[str, Any]:
    """What the run was asked to do, without the schedule and the key."""
    return {
        "url": spec.target.url,
        "model": spec.target.model,
        "endpoint": str(spec.target.endpoint),
        "extra": dict(spec.target.extra),
        "requests": len(spec.schedule),
        "bounds": asdict(spec.bounds),
        "habits": asdict(spec.habits),
        "objectives": asdict(spec.objectives),
        "connections": str(spec.connections),
        "processes": spec.processes,
        "seed": spec.seed,
    }


def tables(summary: Summary) -> list[Table]:
    """The summary for a terminal."""
    ends = Table("outcome", "kind", "requests", box=None, padding=(0, 2))
    ends.columns[2].justify = "right"
    for outcome, count in summary.outcomes.items():
        ends.add_row(outcome, "", str(count))
        for name, number in summary.kinds.items():
            if name.startswith(f"{outcome}/"):
                ends.add_row("", name.partition("/")[2], str(number))
    ends.add_row("all", "", str(summary.requests))
    times = Table("milliseconds", "of", "mean", "p50", "p90", "p95", "p99", "max", box=None, padding=(0, 2))
    times.columns[0].no_wrap = True
    for column in times.columns[1:]:
        column.justify = "right"
    for name, figure in spreads(summary).items():
        times.add_row(name, *cells(figure))
    return [ends, times]


def spreads(summary: Summary) -> dict[str, Spread | None]:
    """The figures that are shown, by what they are called."""
    return {
        "TTFT": summary.ttft,
        "TTFT from sending": summary.ttft_from_sent,
        "TPOT": summary.tpot,
        "longest gap": summary.longest_gap,
        "whole request": summary.request_seconds,
    }


def cells(figure: Spread | None) -> list[str]:
    """A spread in milliseconds."""
    if figure is None:
        return ["0", *"–" * 6]
    values = (figure.mean, figure.p50, figure.p90, figure.p95, figure.p99, figure.max)
    return [str(figure.count), *(f"{value * 1000:.{1 if value < 0.1 else 0}f}" for value in values)]


def facts(summary: Summary) -> list[str]:
    """Sentences: rates, attainment, and the client's own state."""
    client, met = summary.client, summary.attainment
    lines = [
        f"{summary.requests} requests in {summary.seconds:.1f} s: {summary.offered_per_second:.2f}/s offered, "
        f"{summary.completed_per_second:.2f}/s completed, {summary.tokens_per_second:.0f} tokens/s, "
        f"{summary.most_under_way} under way at most; {summary.duplicated} duplicated, {summary.hung} hung"
    ]
    shares = {"TTFT": met.ttft, "TPOT": met.tpot, "both": met.both}
    if stated := [f"{name} {share:.1%}" for name, share in shares.items() if share is not None]:
        lines.append(f"objectives met by {', '.join(stated)} of {met.judged} judged")
    lines.append(
        f"client: sent {client.send_lag_p50 * 1000:.1f} ms (p50), {client.send_lag_p99 * 1000:.1f} ms (p99) after schedule; "
        f"loop late {client.loop_lag_p99 * 1000:.1f} ms (p99); {client.cpu:.0%} of a core"
    )
    return lines

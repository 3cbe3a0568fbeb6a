"""What `steelyard simulate` shows: one row a policy, and how each quarter of the prompts fared."""

from collections.abc import Mapping, Sequence

from rich.table import Table

from steelyard.sim.run import Result

COLUMNS = (
    "policy",
    "attained",
    "goodput",
    "acc.-hours",
    "TTFT p50",
    "p90",
    "p99",
    "worst wait",
    "TPOT p50",
    "p99",
    "flips/min",
    "lost",
)
LEGEND = (
    "attained: requests that met both objectives; goodput: of those, per second and accelerator; acc.-hours: accelerators from"
    " start to drained; worst wait: for a first token, of those too that never got one; flips/min: role changes a minute; lost:"
    " failed (clients that gave up among them) or refused"
)


def row(name: str, result: Result) -> tuple[str, ...]:
    """The figures of one policy."""
    record = result.record
    return (
        name,
        f"{result.attainment:.1%}",
        f"{result.goodput:.3g}",
        f"{result.accelerator_hours:.3f}",
        *(_time(record.ttft.percentile(share)) for share in (0.5, 0.9, 0.99)),
        _time(record.worst_wait),
        *(_time(record.tpot.percentile(share)) for share in (0.5, 0.99)),
        f"{result.role_changes_per_minute:.3g}",
        str(record.failed + record.refused),
    )


def quarter_columns(results: Mapping[str, Result]) -> tuple[str, ...]:
    """A column for each quarter of the prompts, by their tokens; the load is the same for all policies."""
    parts = next(iter(results.values())).record.quartiles()
    return ("attained by prompt tokens", *(f"{part.least}–{part.most}" for part in parts))


def quarter_rows(results: Mapping[str, Result]) -> list[tuple[str, ...]]:
    """Attainment of each quarter."""
    return [
        (name, *(f"{part.share.met / part.share.judged:.1%}" for part in result.record.quartiles()))
        for name, result in results.items()
    ]


def rows_of(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table for the terminal; the first column is text, the others are figures."""
    table = Table(box=None, pad_edge=False)
    for number, name in enumerate(columns):
        table.add_column(name, justify="right" if number else "left", no_wrap=True)
    for one in rows:
        table.add_row(*one)
    return table


def _time(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value * 1000:.0f}ms" if value < 1 else f"{value:.2f}s"

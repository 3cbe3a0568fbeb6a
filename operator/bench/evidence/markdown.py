"""Figures as Markdown: tables whose cells are formatted by what they hold."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table; the first column is text, the others are figures."""
    lines = [f"| {' | '.join(heads)} |", f"|---|{'---:|' * (len(heads) - 1)}"]
    lines += [f"| {' | '.join(cell(value) for value in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def cell(value: Any) -> str:
    """One value: – for none, figures as short as they can be read."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "**no**"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}" if abs(value) >= 1 else f"{value:.3f}"
    return str(value)


def pair(values: Sequence[float] | None) -> str:
    """Attainment at accelerator-hours."""
    return "–" if values is None else f"{values[0]:.3f} @ {values[1]:.4g}"


def pairs(rows: Iterable[Mapping[str, Any]], first: str, words: str) -> str:
    """One row a policy, one column a trace, each `attainment @ hours`; before them the lowest and the sum."""
    listed = list(rows)
    names = list(listed[0]["traces"])
    heads = (first, "lowest", "hours in all", *names)
    body = [
        (row[words], row["lowest"], row["accelerator_hours"], *(pair(row["traces"].get(name)) for name in names))
        for row in listed
    ]
    return table(heads, body)

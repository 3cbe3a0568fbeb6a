"""The table of all items: what each is, whether it is ok, its worst figure, and the CPU that it takes."""

from typing import Any

from bench.evidence.items import ITEMS
from bench.evidence.kept import Figures
from bench.evidence.markdown import table

PINNED_MINUTES, ALL_MINUTES = 5.0, 90.0
UNJUDGED = "none: reported whatever it is"


def table_rows(figures: Figures) -> list[tuple[Any, ...]]:
    """One row an item, in their order."""
    rows = []
    for name, item in ITEMS.items():
        found = figures.get(name)
        ok = bool(found["ok"]) if found is not None and item.judged else None
        worst = None if found is None else found["worst"]
        limit = None if found is None else found.get("limit") if item.judged else UNJUDGED
        minutes = None if found is None else f"{found['cpu_seconds'] / 60:.1f}"
        rows.append((f"`{name}`", "pinned" if item.pinned else "", item.words, ok, worst, limit, minutes))
    return rows


def minutes(figures: Figures, *, pinned: bool = False) -> float:
    """CPU-minutes of all items that were run, or of the pinned ones."""
    counted = [name for name, item in ITEMS.items() if name in figures and (item.pinned or not pinned)]
    return sum(float(figures[name]["cpu_seconds"]) for name in counted) / 60


def table_of(figures: Figures) -> str:
    """The table, and what all of it takes."""
    heads = ("item", "", "what", "ok", "worst", "limit", "CPU-min")
    pinned, everything = minutes(figures, pinned=True), minutes(figures)
    missing = [name for name in ITEMS if name not in figures]
    said = (
        f"\nThe pinned part takes {pinned:.1f} CPU-minutes (at most {PINNED_MINUTES:g}), all of it {everything:.1f} (at most"
        f" {ALL_MINUTES:g}).\n"
    )
    return table(heads, table_rows(figures)) + said + (f"Not run yet: {', '.join(missing)}.\n" if missing else "")

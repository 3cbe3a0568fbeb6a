"""Pictures as SVG text: horizontal bars and lines, without a library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

WIDTH, LABEL, ROW = 860, 260, 24
COLOURS = (
    "#4269d0",
    "#efb118",
    "#ff725c",
    "#6cc5b0",
    "#3ca951",
    "#a463f2",
    "#97bbf5",
    "#9c6b4e",
    "#9498a0",
    "#e7969c",
    "#17becf",
)


def bars(rows: Sequence[tuple[str, float]], unit: str, logarithmic: bool = False) -> str:
    """One bar a row, labelled with its value; logarithmic bars start at the power of ten below the least."""
    values = [value for _, value in rows]
    low = 10 ** math.floor(math.log10(min(values))) if logarithmic else 0.0
    room = WIDTH - LABEL - 160

    def length(value: float) -> float:
        if logarithmic:
            return room * (math.log10(value / low) / max(math.log10(max(values) / low), 1e-9))
        return room * value / max(max(values), 1e-12)

    parts = []
    for number, (name, value) in enumerate(rows):
        y = number * ROW
        parts.append(f'<text x="{LABEL - 8}" y="{y + 16}" text-anchor="end">{escape(name)}</text>')
        parts.append(
            f'<rect x="{LABEL}" y="{y + 4}" width="{length(value):.1f}" height="{ROW - 8}" fill="{COLOURS[0]}"/>'
        )
        parts.append(f'<text x="{LABEL + length(value) + 6:.1f}" y="{y + 16}">{_figure(value)} {escape(unit)}</text>')
    return _svg(len(rows) * ROW + 6, parts)


def lines(series: Sequence[tuple[str, Sequence[float]]], x: str, y: str) -> str:
    """Values over 0, 1, 2, … for several names, with a legend to the right."""
    height, left, top = 300, 76, 14
    right, bottom = WIDTH - LABEL, height - 36
    most = max(max(values) for _, values in series) * 1.05
    count = max(len(values) for _, values in series)
    parts = [f'<line x1="{left}" y1="{bottom}" x2="{right}" y2="{bottom}" stroke="#888"/>']
    for tick in range(5):
        level = most * tick / 4
        place = bottom - (bottom - top) * tick / 4
        parts.append(f'<line x1="{left}" y1="{place:.1f}" x2="{right}" y2="{place:.1f}" stroke="#e4e4e4"/>')
        parts.append(f'<text x="{left - 6}" y="{place + 4:.1f}" text-anchor="end">{level:.3g}</text>')
    for tick in range(0, count, max(1, count // 6)):
        place = left + (right - left) * tick / max(count - 1, 1)
        parts.append(f'<text x="{place:.1f}" y="{bottom + 16}" text-anchor="middle">{tick}</text>')
    for number, (name, values) in enumerate(series):
        colour = COLOURS[number % len(COLOURS)]
        points = " ".join(
            f"{left + (right - left) * place / max(count - 1, 1):.1f},{bottom - (bottom - top) * value / most:.1f}"
            for place, value in enumerate(values)
        )
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<rect x="{right + 14}" y="{top + number * 20}" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{right + 32}" y="{top + number * 20 + 11}">{escape(name)}</text>')
    parts.append(f'<text x="{(left + right) / 2}" y="{height - 4}" text-anchor="middle">{escape(x)}</text>')
    parts.append(
        f'<text x="14" y="{height / 2}" text-anchor="middle" transform="rotate(-90 14 {height / 2})">{escape(y)}</text>'
    )
    return _svg(height, parts)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _svg(height: float, parts: Sequence[str]) -> str:
    style = "font: 13px system-ui, sans-serif; fill: #222"
    return f'<svg viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" style="{style}">{"".join(parts)}</svg>'

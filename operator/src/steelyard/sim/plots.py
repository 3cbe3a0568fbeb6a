"""Small plots as SVG, without any library: lines, steps and points on linear or logarithmic axes, readable when printed.

Every series has a colour of a palette that colour-blind people can tell apart, and its name beside the plot.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, isfinite, log10

Points = Sequence[tuple[float, float]]

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#555555", "#000000")
FILE_PALETTE = ("#2a8fce", "#d55e00", "#009e73", "#c06a99", "#b98500", "#8a6fd1", "#808080", "#349595")
FILE_STYLE = (
    "text{font:11px system-ui,sans-serif;fill:#737b84}.title{font-weight:600;font-size:13px}path{fill:none;stroke-width:1.8}"
    ".grid{stroke:#8c959f;stroke-opacity:.3}"
)
TITLE, LEGEND_ROW, LETTER = 24, 18, 6.3
WIDTH, HEIGHT = 560, 260
LEAST_TICKS = 3
LEFT, RIGHT, TOP, BOTTOM = 58, 12, 12, 40


@dataclass(frozen=True, slots=True)
class Series:
    """A named line; `kind` is line, step or point."""

    name: str
    points: Points
    kind: str = "line"


@dataclass(frozen=True, slots=True)
class Axis:
    """A title (with the unit), and a scale: logarithmic, or from `least` up."""

    title: str
    logarithmic: bool = False
    least: float | None = None
    most: float | None = None


class _Scale:
    """Values to pixels."""

    def __init__(self, axis: Axis, values: list[float], first: float, last: float) -> None:
        self.logarithmic = axis.logarithmic
        usable = [v for v in values if isfinite(v) and (v > 0 or not axis.logarithmic)]
        low = min(usable, default=1.0) if axis.least is None else axis.least
        high = max(usable, default=1.0) if axis.most is None else axis.most
        if axis.logarithmic:
            low, high = log10(low), log10(high)
        self.low, self.high = low, high if high > low else low + 1
        self.first, self.last = first, last

    def __call__(self, value: float) -> float:
        if self.logarithmic:
            value = log10(value) if value > 0 else self.low
        share = min(max((value - self.low) / (self.high - self.low), 0.0), 1.0)
        return self.first + share * (self.last - self.first)

    def ticks(self) -> list[float]:
        """Round values to label: of a logarithmic scale decades, over a short range halves and fifths of them, or even steps."""
        if self.logarithmic:
            for within in ((1,), (1, 2, 5)):
                powers = range(floor(self.low - 1e-9), floor(self.high + 1e-9) + 1)
                found = [m * 10.0**power for power in powers for m in within]
                found = [v for v in found if self.low - 1e-9 <= log10(v) <= self.high + 1e-9]
                if len(found) >= LEAST_TICKS:
                    return found
            return _even(10**self.low, 10**self.high)
        return _even(self.low, self.high)


def _even(low: float, high: float) -> list[float]:
    """About five round values from `low` to `high`."""
    rough = (high - low) / 5
    power = 10.0 ** floor(log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough)
    first = ceil(low / step - 1e-9)
    return [n * step for n in range(first, floor(high / step + 1e-9) + 1)]


def plot(title: str, series: Sequence[Series], across: Axis, up: Axis) -> str:
    """Draw one plot with its legend, for an HTML page whose style sheet is `page.STYLE`."""
    drawn = "".join(_plotted(series, across, up, PALETTE))
    names = "".join(
        f'<span><i style="background:{PALETTE[n % len(PALETTE)]}"></i>{escape(s.name)}</span>'
        for n, s in enumerate(series)
    )
    svg = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">{drawn}</svg>'
    return f'<figure><figcaption>{escape(title)}</figcaption>{svg}<p class="legend">{names}</p></figure>'


def image(title: str, series: Sequence[Series], across: Axis, up: Axis) -> str:
    """Draw one plot as a file of its own, with title and legend in it: greys and colours that can be read on white and on black."""
    drawn = "".join(_plotted(series, across, up, FILE_PALETTE))
    named = [(s.name, FILE_PALETTE[n % len(FILE_PALETTE)]) for n, s in enumerate(series)]
    legend, rows = _legend(named)
    height = TITLE + HEIGHT + LEGEND_ROW * rows
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">'
        f"<title>{escape(title)}</title><style>{FILE_STYLE}</style>"
        f'<text class="title" x="{LEFT}" y="15">{escape(title)}</text><g transform="translate(0 {TITLE})">{drawn}</g>'
        f'<g transform="translate({LEFT} {TITLE + HEIGHT})">{legend}</g></svg>\n'
    )


def _legend(named: Sequence[tuple[str, str]]) -> tuple[str, int]:
    """Names beside their colours, in as many rows as they need."""
    parts, x, row = [], 0.0, 0
    for name, colour in named:
        wide = LETTER * len(name) + 26
        if x and x + wide > WIDTH - LEFT:
            x, row = 0.0, row + 1
        y = LEGEND_ROW * row
        parts.append(f'<rect x="{x:.0f}" y="{y + 4}" width="10" height="10" rx="2" fill="{colour}"/>')
        parts.append(f'<text x="{x + 14:.0f}" y="{y + 13}">{escape(name)}</text>')
        x += wide
    return "".join(parts), row + 1


def _plotted(series: Sequence[Series], across: Axis, up: Axis, palette: Sequence[str]) -> list[str]:
    """Grid, axes and series, in the frame of WIDTH by HEIGHT."""
    xs = _Scale(across, [x for s in series for x, _ in s.points], LEFT, WIDTH - RIGHT)
    ys = _Scale(up, [y for s in series for _, y in s.points], HEIGHT - BOTTOM, TOP)
    parts = []
    for value in xs.ticks():
        x = xs(value)
        parts.append(f'<line class="grid" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}"/>')
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 15}" text-anchor="middle">{value:g}</text>')
    for value in ys.ticks():
        y = ys(value)
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}" text-anchor="middle">{escape(across.title)}</text>'
    )
    parts.append(f'<text transform="translate(13 {middle}) rotate(-90)" text-anchor="middle">{escape(up.title)}</text>')
    for number, line in enumerate(series):
        parts += _drawn(line, xs, ys, palette[number % len(palette)])
    return parts


def _drawn(line: Series, xs: _Scale, ys: _Scale, colour: str) -> list[str]:
    points = [(xs(x), ys(y)) for x, y in line.points if isfinite(x) and isfinite(y)]
    if line.kind == "point":
        return [
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"><title>{escape(line.name)}</title></circle>'
            for x, y in points
        ]
    path: list[str] = []
    for number, (x, y) in enumerate(points):
        if number and line.kind == "step":
            path.append(f"H{x:.1f}")
        path.append(f"{'L' if number else 'M'}{x:.1f} {y:.1f}")
    return [f'<path d="{"".join(path)}" stroke="{colour}"/>'] if path else []

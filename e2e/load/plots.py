"""The plots of a report, as SVG."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter
from numpy.typing import NDArray

from e2e.load.records import Outcome, Record
from e2e.load.running import Result
from e2e.load.summary import under_way

# Okabe and Ito's colours, told apart by colour-blind readers too.
BLUE, ORANGE, GREEN, RED, GREY = "#0072b2", "#e69f00", "#009e73", "#d55e00", "#777777"
_MAX_POINTS = 4000  # of one plot: more only make the file larger
_BROKEN = (Outcome.FAILED, Outcome.REFUSED, Outcome.TIMED_OUT, Outcome.HUNG)
_STYLE: Any = {
    "svg.hashsalt": "steelyard",  # equal figures give equal files
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
}


def plots(result: Result) -> dict[str, str]:
    """SVG by title."""
    draw = {
        "Time to first token": _first_tokens,
        "Time per output token": _per_token,
        "Arrivals and ends": _rates,
        "Each request's time to first token": _scatter,
        "Under way": _under_way,
        "The client's own lag": _lag,
    }
    drawn: dict[str, str] = {}
    with matplotlib.rc_context(_STYLE):
        for title, plot in draw.items():
            figure = Figure(figsize=(6.4, 3.1), layout="constrained")
            plot(figure.add_subplot(), result)
            drawn[title] = _svg(figure, prefix=f"p{len(drawn)}-")
    return drawn


def _svg(figure: Figure, prefix: str) -> str:
    """The figure's SVG element; ids get a prefix, since several stand in one page."""
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    text = file.getvalue()
    text = text[text.index("<svg") :]
    return re.sub(r'(\bid="|"#|url\(#)', lambda found: found.group(1) + prefix, text)


def _first_tokens(axes: Axes, result: Result) -> None:
    timely = [one for one in result.records if not one.slow]
    _distribution(axes, "from the scheduled moment", [one.ttft for one in timely], BLUE)
    _distribution(axes, "from sending", [one.ttft_from_sent for one in timely], ORANGE, style="--")
    _objective(axes, result.spec.objectives.ttft)


def _per_token(axes: Axes, result: Result) -> None:
    timely = [one for one in result.records if not one.slow]
    _distribution(axes, "mean of a request", [one.tpot for one in timely], BLUE)
    _distribution(axes, "longest gap of a request", [one.longest_gap for one in timely], ORANGE, style="--")
    _objective(axes, result.spec.objectives.tpot)


def _distribution(axes: Axes, label: str, figures: Iterable[float | None], colour: str, style: str = "-") -> None:
    """A cumulative distribution over milliseconds."""
    known = np.sort(np.array([figure * 1000 for figure in figures if figure is not None]))
    if len(known):
        known = np.maximum(known, 1e-3)
        shares = np.arange(1, len(known) + 1) / len(known)
        chosen = np.unique(np.linspace(0, len(known) - 1, min(len(known), 500)).astype(int))
        moments = np.concatenate(([known[0] / 1.05], known[chosen], [known[-1] * 1.05]))
        axes.step(
            moments,
            np.concatenate(([0], shares[chosen], [1])),
            style,
            where="post",
            color=colour,
            label=f"{label} ({len(known)})",
        )
        axes.set_xscale("log")
        _legend(axes)
        _plain(axes.xaxis)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("milliseconds")
    axes.set_ylabel("share of requests")


def _legend(axes: Axes) -> None:
    """Above the plot, where nothing is hidden."""
    if axes.get_legend_handles_labels()[1]:
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, borderaxespad=0.2)


def _plain(axis: Axis) -> None:
    """Numbers as people write them on a logarithmic axis."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())


def _objective(axes: Axes, seconds: float | None) -> None:
    if seconds is not None:
        axes.axvline(seconds * 1000, color=GREEN, linewidth=1)
        axes.annotate("objective", (seconds * 1000, 0.04), color=GREEN, rotation=90, ha="right", va="bottom")


def _rates(axes: Axes, result: Result) -> None:
    width = _bin_seconds(result)
    edges = np.arange(0, _end(result) + width, width)
    _histogram(axes, "arrivals", [one.scheduled for one in result.records], edges, BLUE)
    _histogram(axes, "completed", _ends(result.records, (Outcome.COMPLETED,)), edges, GREEN)
    if broken := _ends(result.records, _BROKEN):
        _histogram(axes, "failed, refused, timed out, hung", broken, edges, RED)
    axes.set_ylabel("requests per second")
    axes.set_ylim(bottom=0)
    _timeline(axes, result)
    _legend(axes)


def _bin_seconds(result: Result) -> float:
    """At least a second, and at most 120 bins."""
    return float(max(1, math.ceil(_end(result) / 120)))


def _histogram(axes: Axes, label: str, moments: Sequence[float], edges: NDArray[np.float64], colour: str) -> None:
    counts, _ = np.histogram(moments, edges)
    axes.stairs(counts / (edges[1] - edges[0]), edges, color=colour, label=label, linewidth=1.4)


def _scatter(axes: Axes, result: Result) -> None:
    answered = [one for one in result.records if one.ttft is not None]
    every = math.ceil(len(answered) / _MAX_POINTS) or 1
    for label, colour, slow in (("", BLUE, False), ("read slowly", ORANGE, True)):
        shown = [one for one in answered[::every] if one.slow is slow]
        if shown:
            times = [max((one.ttft or 0.0) * 1000, 1e-3) for one in shown]
            axes.plot([one.scheduled for one in shown], times, ".", ms=3, color=colour, label=label or None)
    if answered:
        axes.set_yscale("log")
        _plain(axes.yaxis)
    broken = [one for one in result.records if one.outcome in _BROKEN][:_MAX_POINTS]
    if broken:
        axes.plot(
            [one.scheduled for one in broken], [0.03] * len(broken), "x", color=RED, ms=4,
            transform=axes.get_xaxis_transform(), label="failed, refused, timed out, hung",
        )  # fmt: skip
    if result.spec.objectives.ttft is not None:
        axes.axhline(result.spec.objectives.ttft * 1000, color=GREEN, linewidth=1, label="objective")
    axes.set_ylabel("milliseconds")
    _timeline(axes, result)
    _legend(axes)


def _under_way(axes: Axes, result: Result) -> None:
    line = under_way(result.records)
    every = math.ceil(len(line) / _MAX_POINTS) or 1
    shown = line[::every]
    axes.step([at for at, _ in shown], [count for _, count in shown], where="post", color=BLUE, linewidth=1.2)
    axes.set_ylabel("requests")
    axes.set_ylim(bottom=0)
    _timeline(axes, result)


def _lag(axes: Axes, result: Result) -> None:
    sent = [(one.sent, one.sent - one.scheduled) for one in result.records if one.sent is not None]
    every = math.ceil(len(sent) / _MAX_POINTS) or 1
    axes.plot(
        [at for at, _ in sent[::every]],
        [lag * 1000 for _, lag in sent[::every]],
        ".",
        ms=2,
        color=BLUE,
        label="sending",
    )
    for number, health in enumerate(result.healths):
        seconds = health.seconds
        label = "event loop, worst of a second" if number == 0 else None
        axes.plot(
            [one.at for one in seconds], [one.loop_lag * 1000 for one in seconds], color=ORANGE, lw=1, label=label
        )
    axes.set_ylabel("milliseconds late")
    axes.set_ylim(bottom=0)
    _timeline(axes, result)
    _legend(axes)


def _timeline(axes: Axes, result: Result) -> None:
    """Seconds along the bottom, the run's marks as lines with their words."""
    axes.set_xlim(0, _end(result))
    axes.set_xlabel("seconds since the start")
    for mark in result.marks:
        axes.axvline(mark.at, color=GREY, linewidth=1, linestyle=":")
        axes.annotate(
            mark.text, (mark.at, 0.98), xycoords=axes.get_xaxis_transform(), rotation=90, ha="right", va="top",
            color=GREY, fontsize=7,
        )  # fmt: skip


def _end(result: Result) -> float:
    return max(1.0, *(max(one.scheduled, one.ended or 0.0) for one in result.records))


def _ends(records: Iterable[Record], outcomes: Sequence[Outcome]) -> list[float]:
    return [one.ended for one in records if one.outcome in outcomes and one.ended is not None]

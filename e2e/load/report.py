"""The HTML report: one file without references to anything outside it."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from e2e.load import wording
from e2e.load.plots import plots
from e2e.load.running import Result
from e2e.load.summary import Summary

_MAX_BROKEN = 200  # rows; all are in requests.jsonl


def html(result: Result, summary: Summary) -> str:
    """The report's text."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template(
        "report.html.j2"
    ).render(
        title=result.spec.title or f"Load on {result.spec.target.url}",
        started=result.started,
        facts=wording.facts(summary),
        summary=summary,
        spreads={name: wording.cells(figure) for name, figure in wording.spreads(summary).items()},
        plots={name: Markup(svg) for name, svg in plots(result).items()},  # matplotlib escapes its texts
        broken=result.broken[:_MAX_BROKEN],
        more=max(0, len(result.broken) - _MAX_BROKEN),
        marks=result.marks,
        asked=wording.asked(result.spec),
    )

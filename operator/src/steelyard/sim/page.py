"""A report as one HTML file: the table of runs, the frontier, ratio and queues over time, distributions of latencies."""

from collections.abc import Mapping, Sequence
from html import escape

from steelyard.sim.plots import Axis, Series, plot
from steelyard.sim.record import PERIOD_SECONDS
from steelyard.sim.run import Result
from steelyard.sim.scenario import AGGREGATED, DECODE, PREFILL

STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:1180px;margin:2rem auto;padding:0 1rem;color:#222}
table{border-collapse:collapse;width:100%;margin:1rem 0}th,td{padding:.3rem .6rem;text-align:right;border-bottom:1px solid #ddd}
th:first-child,td:first-child{text-align:left}.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(420px,1fr));gap:1.5rem}
figure{margin:0}figcaption{font-weight:600}svg{width:100%;font:11px system-ui,sans-serif}svg path{fill:none;stroke-width:1.6}
.grid{stroke:#e4e4e4}.legend span{margin-right:1rem;white-space:nowrap}
.legend i{display:inline-block;width:.8em;height:.8em;margin-right:.3em}
"""


Cells = tuple[Sequence[str], Sequence[Sequence[str]]]  # the heads of a table, and its rows


def page(title: str, words: Sequence[str], tables: Sequence[Cells], results: Mapping[str, Result]) -> str:
    """Put the report together; `words` say what was run, `tables` are the printed ones."""
    shown = "".join(_table(*cells) for cells in tables)
    said = "".join(f"<p>{escape(line)}</p>" for line in words)
    plots = "".join(_plots(results))
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(title)}</title><style>{STYLE}</style>"
        f"<h1>{escape(title)}</h1>{said}{shown}"
        f'<div class="plots">{plots}</div></html>\n'
    )


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def frontier(results: Mapping[str, Result]) -> list[tuple[float, float]]:
    """(Accelerator-hours, attainment) of the runs that no other beats in both, cheapest first."""
    kept: list[tuple[float, float]] = []
    for hours, share in sorted((r.accelerator_hours, -r.attainment) for r in results.values()):
        if not kept or -share > kept[-1][1]:
            kept.append((hours, -share))
    return kept


def _plots(results: Mapping[str, Result]) -> list[str]:
    reached = [Series(name, [(r.accelerator_hours, r.attainment)], "point") for name, r in results.items()]
    if len(results) > 1:
        reached.append(Series("frontier", frontier(results), "step"))
    drawn = [plot("Attainment and cost", reached, Axis("accelerator-hours", least=0), Axis("attainment", most=1.0))]
    swept = _swept(results)
    if swept:
        drawn.append(plot("Attainment by ratio", swept, Axis("prefill replicas"), Axis("attainment", least=0, most=1)))
    drawn.append(plot("Attainment over time", [
        Series(name, [((k + 0.5) * PERIOD_SECONDS / 60, share.met / share.judged)
                      for k, share in sorted(r.record.periods.items()) if share.judged >= 5])
        for name, r in results.items()
    ], Axis("minutes"), Axis("attainment, half minutes", least=0, most=1)))  # fmt: skip
    shares = [
        Series(
            name,
            [(p.at / 60, p.ready[PREFILL] / sum(p.ready.values())) for p in r.timeline if sum(p.ready.values())],
            "step",
        )
        for name, r in results.items()
        if any(PREFILL in p.ready for p in r.timeline)
    ]
    if shares:
        up = Axis("prefill share of ready replicas", least=0, most=1)
        drawn.append(plot("Ratio over time", shares, Axis("minutes"), up))
    for role in (PREFILL, DECODE, AGGREGATED):
        lines = [
            Series(name, [(p.at / 60, p.ready.get(role, 0)) for p in r.timeline], "step")
            for name, r in results.items()
            if any(role in p.ready for p in r.timeline)
        ]
        if lines:
            drawn.append(plot(f"Ready {role} replicas", lines, Axis("minutes"), Axis("replicas", least=0)))
    queues = [
        Series(name, [(p.at / 60, p.prefill_queue + p.decode_queue) for p in r.timeline]) for name, r in results.items()
    ]
    drawn.append(plot("Requests waiting in the gateway", queues, Axis("minutes"), Axis("requests", least=0)))
    for name, pick in (("TTFT", "ttft"), ("TPOT", "tpot")):
        lines = [Series(run, getattr(r.record, pick).cumulative()) for run, r in results.items() if r.record.completed]
        drawn.append(
            plot(f"Distribution of {name}", lines, Axis("seconds", logarithmic=True), Axis("share", least=0, most=1))
        )
    return drawn


def _swept(results: Mapping[str, Result]) -> list[Series]:
    points = []
    for name, result in results.items():
        if name.startswith("static=") and ":" in name:
            points.append((float(name.removeprefix("static=").split(":")[0]), result.attainment))
    return [Series("static", sorted(points))] if len(points) >= 3 else []

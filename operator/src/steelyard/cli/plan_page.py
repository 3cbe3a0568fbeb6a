"""The answer of `steelyard plan` as one HTML file with plots, in the form of the simulator's reports."""

from html import escape

from steelyard.cli.plan_question import Planned
from steelyard.cli.plan_tables import OPTION_COLUMNS, SENSITIVITY_COLUMNS, option_rows, sensitivity_rows, winner
from steelyard.decide.feasibility.findings import milliseconds
from steelyard.sim.page import STYLE
from steelyard.sim.planner import Answer
from steelyard.sim.plots import Axis, Series, plot


def page(question: Planned, found: Answer) -> str:
    """Put the page together."""
    asked = question.question
    load, goal = asked.load, asked.goal
    wanted = " and ".join(
        f"{name} {milliseconds(value)}"
        for name, value in (("TTFT", goal.targets.ttft), ("TPOT", goal.targets.tpot))
        if value
    )
    lengths = f"{load.lengths.prompt:.0f} + {load.lengths.answer:.0f} tokens"
    said = f"{load.rate:g} requests/s of {lengths}, {wanted} for {goal.attainment:.0%}: {winner(found)}."
    head = "".join(f"<th>{escape(name)}</th>" for name in OPTION_COLUMNS)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in option_rows(found))
    notes = "".join(f"<p>Note: {escape(note)}</p>" for note in found.notes)
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>Plan of {escape(question.model)}</title><style>{STYLE}</style>"
        f"<h1>Plan of {escape(question.model)}</h1><p>{escape(said)}</p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"
        f'<div class="plots">{"".join(_plots(found))}</div>{_sensitivity(found)}'
        "<p>Estimated: by queueing, first come first served. Played: by the simulator with the gateway's own queues. Times are"
        " rooflines calibrated on measured deployments.</p></html>\n"
    )


def _plots(found: Answer) -> list[str]:
    drawn = []
    if found.sweep:
        estimated = [(float(line.counts[0]), line.attainment) for line, _ in found.sweep]
        played = [(float(line.counts[0]), one.both) for line, one in found.sweep if one]
        first = [(float(line.counts[0]), one.ttft) for line, one in found.sweep if one]
        later = [(float(line.counts[0]), one.tpot) for line, one in found.sweep if one]
        lines = [
            Series("estimated", estimated),
            Series("both, played", played),
            Series("TTFT, played", first),
            Series("TPOT, played", later),
        ]
        across = Axis("prefill replicas of as many accelerators")
        drawn.append(plot("Attainment by ratio", lines, across, Axis("share of requests", least=0, most=1)))
    kinds = (("apart", found.apart), ("together", found.together))
    clouds = [
        Series(name, [(float(o.accelerators), o.goodput) for o in options], "point")
        for name, options in kinds
        if options
    ]
    drawn.append(plot("Options", clouds, Axis("accelerators", least=0), Axis("requests/s per accelerator", least=0)))
    return drawn


def _sensitivity(found: Answer) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in SENSITIVITY_COLUMNS)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in sensitivity_rows(found)
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

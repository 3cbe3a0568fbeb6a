"""The burst as one HTML file: what arrived, how many replicas did what, what was attained, and what it cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from html import escape
from typing import Any

from steelyard.sim.page import STYLE
from steelyard.sim.plots import Axis, Series, plot

from e2e.demo.burst.account import Figures
from e2e.demo.burst.fleet import Size
from e2e.demo.burst.load import Phase
from e2e.demo.burst.watch import Sample, Watch
from e2e.load import Record, Result
from e2e.load.summary import attainment, under_way

BIN_SECONDS = 15.0
SECONDS = Axis("seconds since the first arrival", least=0)
_STYLE = ".said td,.said th{text-align:left}"
_WORDS = (
    "One load was played against one service three times at once. auto scales itself and changes its replicas' roles, off stays at "
    "the minimum, hindsight has from the start the fewest replicas that hold the objectives over this load, found by the simulator."
)


def page(
    figures: Mapping[str, Figures],
    sizes: Mapping[str, Size],
    results: Mapping[str, Result],
    watch: Watch,
    phases: Sequence[Phase],
) -> str:
    """The page."""
    names = [field.name for field in fields(Figures)]
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in ("service", "at the start", *names))
    body = "".join(
        "<tr>"
        + "".join(f"<td>{cell}</td>" for cell in (name, sizes[name], *(getattr(one, n) for n in names)))
        + "</tr>"
        for name, one in figures.items()
    )
    said = "; ".join(
        f"{phase.seconds:g} s {phase.name} ({phase.rate:g}/s, {phase.prompt_tokens:g} tokens in, {phase.output_tokens:g} out)"
        for phase in phases
    )
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>Burst</title><style>{STYLE}{_STYLE}</style><h1>Burst</h1>"
        f"<p>{escape(_WORDS)}</p><p>{escape(said)}.</p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        f'<div class="plots">{"".join(plots(results, watch.samples))}</div>'
        f"<h2>What auto decided</h2>{decisions(watch.services.get('auto', {}))}</html>\n"
    )


def plots(results: Mapping[str, Result], samples: Mapping[str, Sequence[Sample]]) -> list[str]:
    """Each plot's SVG."""
    auto = samples["auto"]
    records = results["auto"].records
    return [
        plot(
            "Tokens that arrive",
            [Series("in", rates(records, lambda one: one.prompt_tokens), "step"),
             Series("out", rates(records, lambda one: one.output_tokens), "step")],
            SECONDS, Axis("tokens per second", least=0),
        ),
        plot(
            "auto: replicas by what they do",
            [Series("prefill", [(one.at, one.prefill) for one in auto], "step"),
             Series("decode", [(one.at, one.decode) for one in auto], "step"),
             Series("starting or leaving", [(one.at, one.coming) for one in auto], "step")],
            SECONDS, Axis("replicas", least=0),
        ),
        plot(
            "Accelerators held",
            [Series(name, [(one.at, one.held) for one in found], "step") for name, found in samples.items()],
            SECONDS, Axis("accelerators", least=0),
        ),
        plot(
            "Attainment by moment of arrival",
            [Series(name, attained(result), "step") for name, result in results.items()],
            SECONDS, Axis(f"share of {BIN_SECONDS:g} s", least=0, most=1),
        ),
        plot(
            "Requests under way",
            [Series(name, under_way(result.records), "step") for name, result in results.items()],
            SECONDS, Axis("requests", least=0),
        ),
        plot(
            "Time to first token",
            [Series(name, distribution(result)) for name, result in results.items()],
            Axis("seconds", logarithmic=True), Axis("share of requests", least=0, most=1),
        ),
    ]  # fmt: skip


def bins(records: Sequence[Record]) -> list[list[Record]]:
    """The requests by the span in which they arrive, whatever became of them."""
    found: list[list[Record]] = [[] for _ in range(int(records[-1].scheduled / BIN_SECONDS) + 1)]
    for one in records:
        found[int(one.scheduled / BIN_SECONDS)].append(one)
    return found


def rates(records: Sequence[Record], tokens: Callable[[Record], int]) -> list[tuple[float, float]]:
    """Tokens per second, by span."""
    return [(n * BIN_SECONDS, sum(map(tokens, part)) / BIN_SECONDS) for n, part in enumerate(bins(records))]


def attained(result: Result) -> list[tuple[float, float]]:
    """The share that met both objectives, by span; spans without requests are left out."""
    return [
        (n * BIN_SECONDS, attainment(part, result.spec.objectives).both or 0.0)
        for n, part in enumerate(bins(result.records))
        if part
    ]


def distribution(result: Result) -> list[tuple[float, float]]:
    """Seconds and the share of all requests that had their first token by then."""
    known = sorted(one.ttft for one in result.records if one.ttft is not None)
    return [(seconds, (n + 1) / len(result.records)) for n, seconds in enumerate(known)]


def decisions(service: Mapping[str, Any]) -> str:
    """The service's own history, latest first."""
    history = service.get("status", {}).get("history", ())
    lines = ((one["time"], one["action"], "; ".join(one.get("because", ()))) for one in history)
    rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>" for line in lines)
    return f"<table class=said><thead><tr><th>time</th><th>what</th><th>because</th></tr></thead><tbody>{rows}</tbody></table>"

"""The burst in the terminal while it plays: one line a service, live, or now and then where nobody can see it move."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Group
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from e2e.demo.burst.account import held_seconds
from e2e.demo.burst.load import PHASES, phase_at
from e2e.demo.burst.watch import Sample, Watch
from e2e.load import Outcome, Running

PREFILL, DECODE, COMING = "blue", "dark_orange", "grey50"
WHOLE_SECONDS = sum(phase.seconds for phase in PHASES)


def picture(watch: Watch, runs: Mapping[str, Running], seconds: float) -> Group:
    """All of it."""
    table = Table(box=None, padding=(0, 2), pad_edge=False)
    for name in (
        "",
        "prefill and decode replicas",
        "ratio",
        "under way",
        "answered",
        "broken",
        "attained",
        "acc.-hours",
    ):
        table.add_column(name, justify="left" if name in ("", "prefill and decode replicas") else "right", no_wrap=True)
    table.columns[1].min_width = 26
    for name, run in runs.items():
        samples = watch.samples[name]
        if samples:
            table.add_row(name, replicas(samples[-1]), *cells(samples, run))
    because = next((one.because for samples in watch.samples.values() for one in samples[-1:] if one.because), "")
    return Group(
        Text(f"{min(seconds, WHOLE_SECONDS):4.0f} s  {phase_at(seconds)}"),
        ProgressBar(WHOLE_SECONDS, min(seconds, WHOLE_SECONDS), width=60),
        table,
        Text(because and f"auto: {because}", style="dim"),
    )


def replicas(sample: Sample) -> Text:
    """A block a replica: those that prefill, those that decode, those that start or leave."""
    parts = ((sample.prefill, PREFILL), (sample.decode, DECODE), (sample.coming, COMING))
    return Text.assemble(*(("█ " * count, style) for count, style in parts))


def cells(samples: list[Sample], run: Running) -> tuple[str, ...]:
    """The figures beside it."""
    seen, last = run.progress(), samples[-1]
    ended = sum(seen.outcomes.values())
    return (
        f"{last.prefill}:{last.decode}",
        str(seen.under_way),
        str(seen.outcomes[Outcome.COMPLETED]),
        str(ended - seen.outcomes[Outcome.COMPLETED]),
        "–" if last.attained is None else f"{last.attained:.1f} %",
        f"{held_seconds(samples, last.at) / 3600:.3f}",
    )


def line(watch: Watch, runs: Mapping[str, Running], seconds: float) -> str:
    """The same in one line of plain text."""
    said = [
        f"{name} {last.prefill}:{last.decode} ({run.progress().under_way} under way)"
        for name, run in runs.items()
        for last in watch.samples[name][-1:]
    ]
    return f"burst at {seconds:.0f} s, {phase_at(seconds)}: {', '.join(said)}"

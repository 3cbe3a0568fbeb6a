"""The command line: `python -m e2e.load run …`."""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from e2e.errors import ToolError
from e2e.load import selftest as limits
from e2e.load import traces
from e2e.load.arrivals import Lengths, Pattern, Schedule, Shape, clip, cut, hasten, scale, synthetic
from e2e.load.errors import LoadError
from e2e.load.records import Outcome
from e2e.load.running import Result, Running, start_load
from e2e.load.spec import Bounds, Connections, Endpoint, Habits, Objectives, Spec, Target
from e2e.load.summary import summarise
from e2e.load.wording import facts, tables

console = Console(highlight=False)
app = typer.Typer(
    help="Open-loop load on an OpenAI endpoint; every request is accounted for.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command()
def run(
    url: Annotated[str, typer.Option(help="Where to: http(s)://HOST:PORT, before /v1.")],
    model: Annotated[str, typer.Option(help="The model's served name.")],
    endpoint: Annotated[Endpoint, typer.Option(help="Which API.")] = Endpoint.COMPLETIONS,
    trace: Annotated[Path | None, typer.Option(help="Arrivals from a CSV or JSON-lines file.", dir_okay=False)] = None,
    start: Annotated[float, typer.Option(help="Seconds of the trace to skip.", min=0)] = 0.0,
    duration: Annotated[float | None, typer.Option(help="Seconds of schedule; 30, or the whole trace.", min=0)] = None,
    scaled: Annotated[float, typer.Option("--scale", help="Times as many arrivals, same clock.")] = 1.0,
    speed: Annotated[float, typer.Option(help="The trace's clock, times as fast (before --duration).")] = 1.0,
    max_prompt_tokens: Annotated[int | None, typer.Option(help="Clip longer prompts.", min=1)] = None,
    max_output_tokens: Annotated[int | None, typer.Option(help="Clip longer answers.", min=1)] = None,
    pattern: Annotated[Pattern, typer.Option(help="Without a trace: how arrivals are spaced.")] = Pattern.POISSON,
    rate: Annotated[float, typer.Option(help="Requests per second, mean.")] = 1.0,
    burstiness: Annotated[float, typer.Option(help="gamma: coefficient of variation of the gaps.")] = 3.0,
    period: Annotated[float, typer.Option(help="sinusoid: seconds.")] = 60.0,
    swing: Annotated[float, typer.Option(help="sinusoid: 0 is constant, 1 reaches zero.")] = 0.8,
    prompt_tokens: Annotated[float, typer.Option(help="Mean tokens in.")] = 256,
    output_tokens: Annotated[float, typer.Option(help="Mean tokens out.")] = 64,
    variation: Annotated[float, typer.Option(help="Coefficient of variation of both lengths; 0: all equal.")] = 0.0,
    ttft: Annotated[float | None, typer.Option(help="Objective, seconds.")] = None,
    tpot: Annotated[float | None, typer.Option(help="Objective, seconds.")] = None,
    request_bound: Annotated[float, typer.Option(help="Seconds until a request is timed_out.")] = 120.0,
    silence_bound: Annotated[float, typer.Option(help="Seconds without a byte until it is hung.")] = 30.0,
    cancel_fraction: Annotated[float, typer.Option(help="Clients that leave before the end.")] = 0.0,
    slow_fraction: Annotated[float, typer.Option(help="Clients that read slowly.")] = 0.0,
    slow_bytes_per_second: Annotated[float, typer.Option(help="How slowly.")] = 2048.0,
    connections: Annotated[Connections, typer.Option(help="One per request, or kept.")] = Connections.FRESH,
    processes: Annotated[int, typer.Option(help="Processes that share the schedule.")] = 1,
    extra: Annotated[str, typer.Option(help='More of each request\'s JSON, such as {"ignore_eos": true}.')] = "{}",
    api_key: Annotated[str | None, typer.Option(envvar="STEELYARD_API_KEY", help="Sent as a bearer token.")] = None,
    ca: Annotated[Path | None, typer.Option(help="https: PEM file of trusted authorities.", dir_okay=False)] = None,
    seed: Annotated[int, typer.Option(help="Of arrivals, lengths, prompts and habits.")] = 0,
    title: Annotated[str, typer.Option(help="The report's heading.")] = "",
    out: Annotated[Path, typer.Option(help="Folder of the results.", file_okay=False)] = Path("e2e/out/load"),
) -> None:
    """Send a schedule, wait for every answer, and write requests.jsonl, summary.json and report.html.

    Ends with status 1 when the client was the bottleneck: the figures are not the server's then. Broken requests are a
    result, not an error. Ctrl-C stops sending, a second one cancels what is under way.
    """
    if trace is None:
        shape = Shape(pattern, rate, burstiness, period, swing)
        schedule = synthetic(shape, Lengths(prompt_tokens, output_tokens, variation), duration or 30.0, seed)
    else:
        schedule = cut(hasten(cut(traces.read(trace), start), speed), 0, math.inf if duration is None else duration)
    spec = Spec(
        target=Target(url, model, endpoint, _object(extra), api_key, ca),
        schedule=clip(scale(schedule, scaled, seed), max_prompt_tokens, max_output_tokens),
        bounds=Bounds(request_bound, silence_bound),
        habits=Habits(cancel_fraction, slow_fraction, slow_bytes_per_second),
        objectives=Objectives(ttft, tpot),
        connections=connections,
        processes=processes,
        seed=seed,
        title=title,
    )
    _announce(spec.schedule)
    with start_load(spec) as running:
        result = _watch(running, len(spec.schedule))
    _tell(result, out)


@app.command()
def selftest(
    seconds: Annotated[float, typer.Option(help="Of schedule in each trial.", min=1)] = 5.0,
    output_tokens: Annotated[int, typer.Option(help="Of each answer, one each 20 ms.", min=1)] = 32,
    processes: Annotated[int, typer.Option(help="Processes that share the schedule.", min=1, max=64)] = 1,
    bound: Annotated[float, typer.Option(help="Seconds of lag at the 99th percentile.", min=0.001)] = 0.01,
    most: Annotated[float, typer.Option(help="Requests per second that are tried.", min=1)] = limits.MOST,
) -> None:
    """Find the rate of arrivals that this client holds on this machine, against a stub that costs next to nothing.

    Takes a minute or two. Ends with status 1 when it holds none: the machine is too busy to measure anything from.
    """
    course, where = limits.Course(seconds, output_tokens, processes, bound, most), limits.machine()

    def told(trial: limits.Trial) -> None:
        console.print(
            f"{trial.rate:7.0f}/s: sent {trial.send_lag_p99 * 1000:6.1f} ms late (p99), loop {trial.loop_lag_p99 * 1000:6.1f} ms, "
            f"{trial.cpu:4.0%} of a core, {trial.broken} broken: {'held' if trial.held else 'not held'}",
            soft_wrap=True,
        )

    best = limits.limit(limits.run(course, told))
    if best is None:
        console.print(f"no rate was held within {bound * 1000:g} ms on {where}", soft_wrap=True)
        raise typer.Exit(1)
    console.print(
        f"holds {best.rate:.0f} requests/s ({best.rate * output_tokens:.0f} tokens/s) with {processes} processes, lag p99 "
        f"{max(best.send_lag_p99, best.loop_lag_p99) * 1000:.1f} ms; measured on {where}",
        soft_wrap=True,
    )


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise LoadError(f"--extra is not JSON: {error}.") from None
    if not isinstance(found, dict):
        raise LoadError("--extra must be a JSON object.")
    return found


def _announce(schedule: Schedule) -> None:
    tokens = (sum(one.prompt_tokens for one in schedule), sum(one.output_tokens for one in schedule))
    console.print(
        f"{len(schedule)} requests over {schedule[-1].at:.1f} s: {tokens[0]} tokens in, {tokens[1]} tokens out",
        soft_wrap=True,
    )


def _watch(running: Running, requests: int) -> Result:
    """Show progress until every request has ended."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    interrupted = 0
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        sent, ended = bars.add_task("sent", total=requests), bars.add_task("ended", total=requests)
        while not running.done():
            try:
                time.sleep(0.2)
            except KeyboardInterrupt:
                interrupted += 1
                running.stop(now=interrupted > 1)
                running.mark("interrupted")
            seen = running.progress()
            broken = sum(seen.outcomes.values()) - seen.outcomes[Outcome.COMPLETED] - seen.outcomes[Outcome.CANCELLED]
            bars.update(sent, completed=seen.sent, description=f"sent, {seen.under_way} under way")
            bars.update(ended, completed=sum(seen.outcomes.values()), description=f"ended, {broken} broken")
        result = running.result()
        for task in (sent, ended):
            bars.update(task, completed=requests)
    return result


def _tell(result: Result, out: Path) -> None:
    from e2e.load.output import write  # matplotlib takes a second: nobody waits for it before the run

    summary = summarise(result)
    write(result, summary, out)
    for table in tables(summary):
        console.print()
        console.print(table)
    console.print()
    for fact in facts(summary):
        console.print(fact, soft_wrap=True)
    console.print(f"written to {out}: requests.jsonl, summary.json, report.html", soft_wrap=True)
    if summary.client.client_bottleneck:
        reasons = "; ".join(summary.client.reasons)
        console.print(
            f"[bold white on red] THE CLIENT WAS THE BOTTLENECK [/] {escape(reasons)}. These figures are not the server's: "
            "use more --processes, or a quieter machine.",
            soft_wrap=True,
        )
        raise typer.Exit(1)


def main() -> None:
    """Run the command line; failures that are understood end with their message and status 2."""
    try:
        app()
    except ToolError as error:
        console.print(f"[bold red]error:[/bold red] {escape(str(error))}", soft_wrap=True)
        sys.exit(2)

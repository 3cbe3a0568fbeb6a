"""`steelyard simulate`: play a load against a service, its autoscaler and the rivals, without a cluster."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from steelyard.cli import outputs
from steelyard.cli.flags import given, seconds
from steelyard.cli.refusing import Refused
from steelyard.cli.simulate_flags import check, check_failures
from steelyard.cli.simulate_tables import COLUMNS, LEGEND, quarter_columns, quarter_rows, row, rows_of
from steelyard.cli.simulated import Run, Setting, runs
from steelyard.sim.load import PATTERNS, Wanted, arrivals
from steelyard.sim.page import page
from steelyard.sim.policies.choose import NAMES
from steelyard.sim.requests import Arrival
from steelyard.sim.run import Result
from steelyard.sim.run import simulate as run
from steelyard.sim.summary import summary, timeline

UNUSABLE = 2
LEAST_WIDTH = 130  # of the table where the output is no terminal
REPORT_EVERY = 200  # requests between two moves of the progress bar


Seconds = Annotated[float, typer.Option(parser=seconds, metavar="DURATION")]


def simulate_command(
    context: typer.Context,
    service: Annotated[
        Path | None,
        typer.Option(
            "-f",
            "--service",
            help="Manifest of an InferenceService: its engines by roofline, replicas, objectives, limits.",
        ),
    ] = None,
    accelerators: Annotated[
        list[Path] | None, typer.Option(help="Manifests of Accelerators, besides the catalogue's.")
    ] = None,
    profile: Annotated[
        Path | None, typer.Option(help="Profile of an engine (JSON), instead of a service or of its roofline.")
    ] = None,
    max_sequences: Annotated[int, typer.Option(help="With --profile and no service: sequences of one replica.")] = 256,
    max_batch_tokens: Annotated[int, typer.Option(help="With --profile and no service: tokens of one pass.")] = 8192,
    replicas: Annotated[
        str | None,
        typer.Option(help="Replicas at the start, prefill:decode such as 6:1, or one number for aggregated ones."),
    ] = None,
    ttft: Annotated[
        float | None, typer.Option(parser=seconds, metavar="DURATION", help="Objective: time to the first token.")
    ] = None,
    tpot: Annotated[
        float | None, typer.Option(parser=seconds, metavar="DURATION", help="Objective: time per further token.")
    ] = None,
    attainment: Annotated[float | None, typer.Option(help="Percent of requests that must meet both.")] = None,
    budget: Annotated[int | None, typer.Option(help="The most accelerators.")] = None,
    startup: Annotated[
        float | None, typer.Option(parser=seconds, metavar="DURATION", help="Start-up time of a replica.")
    ] = None,
    role_change: Annotated[bool, typer.Option(help="Whether replicas may change roles.")] = True,
    routing: Annotated[
        str, typer.Option(help="gateway (ours), round-robin, least-loaded, or wspt (Dynamo's queue, shortest first).")
    ] = "gateway",
    client_timeout: Annotated[
        float | None,
        typer.Option(
            parser=seconds,
            metavar="DURATION",
            help="Clients without their whole answer by then give up, and have failed. Default: the service's requestTimeout.",
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(help="Trace (Azure's or own CSV, Mooncake's JSON lines) or a folder of ServeGen's clients."),
    ] = None,
    pattern: Annotated[str | None, typer.Option(help=f"Instead of a trace: {', '.join(PATTERNS)}.")] = None,
    rate: Annotated[float, typer.Option(help="Requests per second of a pattern.")] = 10.0,
    prompt_tokens: Annotated[float, typer.Option(help="Mean prompt of a pattern.")] = 1000.0,
    output_tokens: Annotated[float, typer.Option(help="Mean answer of a pattern.")] = 200.0,
    other_rate: Annotated[
        float | None, typer.Option(help="Alternating: requests per second of the second load.")
    ] = None,
    other_prompt_tokens: Annotated[float | None, typer.Option(help="Alternating: its mean prompt.")] = None,
    other_output_tokens: Annotated[float | None, typer.Option(help="Alternating: its mean answer.")] = None,
    variation: Annotated[float, typer.Option(help="Spread of lengths: deviation of their logarithm.")] = 0.5,
    burstiness: Annotated[
        float, typer.Option(help="Coefficient of variation of the gaps between arrivals (poisson: 1).")
    ] = 1.0,
    period: Annotated[
        float,
        typer.Option(parser=seconds, metavar="DURATION", help="Of a sinusoid; of one phase of alternating loads."),
    ] = "300s",  # type: ignore[assignment]
    swing: Annotated[float, typer.Option(help="Share by which a sinusoid's rate swings.")] = 0.5,
    duration: Annotated[
        float | None,
        typer.Option(
            parser=seconds,
            metavar="DURATION",
            help="How long requests arrive. Default: the whole trace; 10m of a pattern.",
        ),
    ] = None,
    start: Annotated[float, typer.Option(parser=seconds, metavar="DURATION", help="Where in a trace to begin.")] = "0s",  # type: ignore[assignment]
    speed: Annotated[float, typer.Option(help="Play a trace so many times as fast.")] = 1.0,
    scale: Annotated[
        float, typer.Option(help="Keep (below 1) or multiply (above 1) the arrivals, on the same clock.")
    ] = 1.0,
    shared_cache: Annotated[
        bool, typer.Option(help="A trace with prefix hashes: one unlimited cache for all replicas.")
    ] = False,
    prefix_cache: Annotated[
        int,
        typer.Option(help="A trace with prefix hashes: tokens of the cache that each replica has of its own. 0: none."),
    ] = 0,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Repeatable: {', '.join(NAMES)}; with settings, as hpa-queue,target=4,window=120 or static=5:1. Default: ours."
        ),
    ] = None,
    sweep: Annotated[
        str | None, typer.Option(help="ratio: every static ratio of as many replicas as --replicas has.")
    ] = None,
    fail: Annotated[
        list[str] | None,
        typer.Option(metavar="ROLE@TIME", help="Repeatable: a replica of that role dies then, such as decode@2m."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Everything random follows from it.")] = 0,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all figures there; - for the output.")] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write a report with plots there.")] = None,
) -> None:
    """Simulate a service under a load, with our autoscaler or others.

    The queues of the gateway and the law of the autoscaler are the very ones that run in the cluster; engines follow a
    profile or a roofline. What the API server or the operator would refuse is refused in their words. Exit status: 0 simulated,
    2 something asked for makes no sense, or the service is refused.
    """
    console = Console(stderr=True)
    try:
        wanted = Wanted(trace, pattern, rate, prompt_tokens, output_tokens, other_rate, other_prompt_tokens,
                        other_output_tokens, variation, burstiness, period, swing, duration, start, speed, scale,
                        shared_cache, seed)  # fmt: skip
        setting = Setting(service, tuple(accelerators or ()), profile, max_sequences, max_batch_tokens, replicas, ttft, tpot,
                          attainment, budget, startup, role_change, routing, seed, client_timeout, tuple(fail or ()),
                          prefix_cache)  # fmt: skip
        check(given(context), wanted, setting)
        outputs.check({"--json": json_file, "--html": html})
        play = arrivals(wanted)
        planned = runs(setting, tuple(policy or ()), sweep)
        total, last = 0, 0.0
        for arrival in play():
            total, last = total + 1, arrival.at
        if not total:
            raise ValueError("nothing arrives in the part of the load that was chosen; look at --start and --duration")
        failing = planned[0].scenario.failures
        check_failures({text: one.at for text, one in zip(setting.failures, failing, strict=True)}, wanted, last)
        results: dict[str, Result] = {}
        with _progress(console, total * len(planned)) as advance:
            for each in planned:
                results[each.name] = run(each.scenario, play(), each.make(), advance(each.name))
        _tell(results, planned, total, json_file, html, trace or pattern)
    except Refused as failure:
        typer.echo(str(failure), err=True)
        raise typer.Exit(UNUSABLE) from failure
    except ValueError as failure:
        console.print(f"[red]error:[/red] {escape(str(failure))}", highlight=False, soft_wrap=True)
        raise typer.Exit(UNUSABLE) from failure


def _tell(results: dict[str, Result], planned: list[Run], total: int, json_file: Path | None, html: Path | None,
          load: Path | str | None) -> None:  # fmt: skip
    rows = [row(name, result) for name, result in results.items()]
    quarters = quarter_columns(results), quarter_rows(results)
    if not outputs.to_output(json_file) and not outputs.to_output(html):
        out = Console() if sys.stdout.isatty() else Console(width=LEAST_WIDTH)
        for columns, lines in ((COLUMNS, rows), quarters):
            out.print(rows_of(columns, lines))
            out.print()
        out.print(LEGEND, style="dim", highlight=False)
    if json_file is not None:
        runs_ = [{"policy": name, **summary(result), "timeline": timeline(result)} for name, result in results.items()]
        outputs.put("--json", json_file, json.dumps({"requests": total, "runs": runs_}, indent=1) + "\n")
    if html is not None:
        words = [f"{total} requests of {load}.", planned[0].words]
        outputs.put("--html", html, page("Simulation", words, [(COLUMNS, rows), quarters], results))


@contextmanager
def _progress(console: Console, total: int) -> Iterator[Callable[[str], Callable[[Arrival], None]]]:
    """A bar on a terminal, nothing elsewhere."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("", total=total)

        def begin(name: str) -> Callable[[Arrival], None]:
            bar.update(task, description=name)
            seen = 0

            def advance(arrival: Arrival) -> None:
                nonlocal seen
                seen += 1
                if seen % REPORT_EVERY == 0:
                    bar.advance(task, REPORT_EVERY)

            return advance

        yield begin

"""`steelyard plan`: what serves a load for the fewest accelerators, before anything is paid for."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from steelyard.cli.plan_manifest import manifest
from steelyard.cli.plan_page import page
from steelyard.cli.plan_question import Asked, planned
from steelyard.cli.plan_ratio import ratio_cells, ratio_figures, ratio_page, ratio_table
from steelyard.cli.plan_tables import figures, show
from steelyard.cli.refusing import Refused
from steelyard.cli.render import REFUSED, UNUSABLE
from steelyard.cli.simulate import seconds
from steelyard.sim.planner import answer

NOTHING_SERVES = 3
DEFAULT_PERCENT = 95.0
WIDTH = 132  # of tables where the output is no terminal


def plan_command(
    file: Annotated[
        Path | None,
        typer.Option(
            "-f", "--file", help="Manifest of an InferenceService: its model, accelerators, engine, objectives, budget."
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Instead: a repository's name, such as Qwen/Qwen3-32B, or its quantized kin.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="The model's config.json, where the catalogue lacks it.")] = None,
    accelerator: Annotated[
        list[str] | None,
        typer.Option(help="Repeatable: accelerators to consider; roles may lie on different ones. Default: h200."),
    ] = None,
    accelerators: Annotated[
        list[Path] | None, typer.Option(help="Manifests of Accelerators, besides the catalogue's.")
    ] = None,
    engine: Annotated[str | None, typer.Option(help="vllm, sglang, tensorrt-llm or simulated. Default: vllm.")] = None,
    weights: Annotated[
        list[str] | None,
        typer.Option(
            help="Repeatable: formats of the weights. Default: the checkpoint's, and what it can be quantized to."
        ),
    ] = None,
    kv_cache: Annotated[
        str | None, typer.Option(help="Format of the KV cache: none, fp8, int8 … Default: none.")
    ] = None,
    context_length: Annotated[int | None, typer.Option(help="Longest request. Default: the load's longest.")] = None,
    rate: Annotated[float | None, typer.Option(help="Requests per second. Default: the trace's, else 10.")] = None,
    prompt_tokens: Annotated[float | None, typer.Option(help="Mean prompt that is not cached. Default: 1000.")] = None,
    output_tokens: Annotated[float | None, typer.Option(help="Mean answer. Default: 200.")] = None,
    variation: Annotated[float, typer.Option(help="Spread of lengths: deviation of their logarithm.")] = 0.5,
    trace: Annotated[
        Path | None, typer.Option(help="Trace (Azure's or own CSV, Mooncake's JSON lines) for lengths and arrivals.")
    ] = None,
    ttft: Annotated[
        float | None,
        typer.Option(
            parser=seconds, metavar="DURATION", help="Objective: time to the first token. Without any objective: 1s."
        ),
    ] = None,
    tpot: Annotated[
        float | None,
        typer.Option(
            parser=seconds, metavar="DURATION", help="Objective: time per further token. Without any objective: 50ms."
        ),
    ] = None,
    attainment: Annotated[
        float | None, typer.Option(help="Percent of requests that must meet both. Default: 95.")
    ] = None,
    budget: Annotated[int | None, typer.Option(help="The most accelerators.")] = None,
    profile: Annotated[
        Path | None,
        typer.Option(
            help="Instead of a model: a measured engine's profile (JSON); plays every ratio of --budget replicas."
        ),
    ] = None,
    rates: Annotated[
        str | None, typer.Option(help="With --profile: the rates to play the trace at, such as 4,8,12.")
    ] = None,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="Play every ratio of as many accelerators, not only those near the best.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of the arrivals.")] = 0,
    acceptance: Annotated[
        float | None,
        typer.Option(
            help="Share of spec.speculation's guesses that are accepted, as the engine's metrics tell. Default: no guesses."
        ),
    ] = None,
    write: Annotated[Path | None, typer.Option(help="Write a ready InferenceService there; - for the output.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all figures there; - for the output.")] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write a page with plots there.")] = None,
) -> None:
    """Find the fewest accelerators that serve a load within its objectives.

    Every format and layout that fits is sized by its roofline (calibrated on measured deployments) and by queueing; the best
    disaggregated and the best aggregated one are then played by the simulator, and you are told which wins. What the operator
    would refuse is refused here in the same words.

    Exit status: 0 planned, 1 something asked for makes no sense, 2 the operator would refuse the service, 3 nothing serves the
    load within the objectives (and the budget).
    """
    errors = Console(stderr=True)
    if profile is not None:
        try:
            if trace is None:
                raise ValueError("--profile needs --trace, whose requests are played")
            cells = ratio_cells(profile, trace, budget, rates, ttft, tpot, seed)
        except ValueError as failure:
            errors.print(f"[red]error:[/red] {failure}", highlight=False)
            raise typer.Exit(UNUSABLE) from failure
        wanted = (attainment or DEFAULT_PERCENT) / 100
        _put(json_file, json.dumps(ratio_figures(cells, wanted), indent=1) + "\n")
        _put(html, ratio_page(cells, wanted))
        if str(json_file) != "-":
            _console().print(ratio_table(cells, wanted))
        return
    asked = Asked(
        file,
        tuple(accelerators or ()),
        model,
        config,
        tuple(accelerator or ()),
        engine,
        tuple(weights or ()),
        kv_cache,
        context_length,
        rate,
        prompt_tokens,
        output_tokens,
        variation,
        trace,
        ttft,
        tpot,
        attainment,
        budget,
        seed,
        acceptance,
    )
    try:
        question = planned(asked)
        found = answer(question.question, every_ratio=sweep)
    except Refused as failure:
        typer.echo(str(failure), err=True)
        raise typer.Exit(REFUSED) from failure
    except ValueError as failure:
        errors.print(f"[red]error:[/red] {failure}", highlight=False)
        raise typer.Exit(UNUSABLE) from failure
    if found.chosen is None:
        for reason in found.refused:
            typer.echo(reason, err=True)
        raise typer.Exit(NOTHING_SERVES)
    quiet = "-" in (str(json_file), str(write))
    if not quiet:
        show(question, found, _console())
    _put(json_file, json.dumps(figures(question, found), indent=1) + "\n")
    _put(write, manifest(question, found.chosen))
    if html is not None:
        _put(html, page(question, found))
    if found.chosen.both < question.question.goal.attainment:
        typer.echo("nothing keeps the promise in play; the figures are those of what comes nearest", err=True)
        raise typer.Exit(NOTHING_SERVES)


def _console() -> Console:
    return Console() if sys.stdout.isatty() else Console(width=WIDTH)


def _put(path: Path | None, text: str) -> None:
    """Write a text to a file, or to the output where the path is -."""
    if path is not None and str(path) == "-":
        typer.echo(text, nl=False)
    elif path is not None:
        path.write_text(text)

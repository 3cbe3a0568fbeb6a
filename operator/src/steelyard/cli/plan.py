"""`steelyard plan`: what serves a load for the fewest accelerators, before anything is paid for."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
import yaml
from rich.console import Console
from rich.markup import escape

from steelyard.catalog.engines import ENGINES
from steelyard.cli import flags, outputs
from steelyard.cli.flags import seconds
from steelyard.cli.plan_manifest import manifest
from steelyard.cli.plan_page import page
from steelyard.cli.plan_question import Asked, Planned, planned
from steelyard.cli.plan_ratio import ratio_cells, ratio_figures, ratio_page, ratio_table
from steelyard.cli.plan_tables import figures, show
from steelyard.cli.refusing import Refused, refused
from steelyard.cli.render import REFUSED, UNUSABLE
from steelyard.sim.planner import answer

NOTHING_SERVES = 3
DEFAULT_PERCENT = 95.0
OF_LENGTHS = ("--prompt-tokens", "--output-tokens", "--variation")
OF_MODELS = (
    *("--file", "--model", "--config", "--accelerator", "--accelerators", "--engine", "--weights", "--kv-cache"),
    *("--context-length", "--rate", *OF_LENGTHS, "--sweep", "--acceptance", "--write"),
)  # without effect on a measured engine
WIDTH = 132  # of tables where the output is no terminal


def plan_command(
    context: typer.Context,
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
    engine: Annotated[str | None, typer.Option(help=f"{', '.join(ENGINES)}. Default: vllm.")] = None,
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
    written = {"--write": write, "--json": json_file, "--html": html}
    quiet = any(map(outputs.to_output, written.values()))
    try:
        _with_effect(flags.given(context))
        outputs.check(written)
        if profile is not None:
            cells = ratio_cells(profile, trace, budget, rates, ttft, tpot, seed)
            wanted = _share(attainment)
            if not quiet:
                _console().print(ratio_table(cells, wanted))
            outputs.put("--json", json_file, json.dumps(ratio_figures(cells, wanted), indent=1) + "\n")
            outputs.put("--html", html, ratio_page(cells, wanted))
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
        question = planned(asked)
        found = answer(question.question, every_ratio=sweep)
        if found.chosen is None:
            for reason in found.refused:
                typer.echo(reason, err=True)
            raise typer.Exit(NOTHING_SERVES)
        if not quiet:
            show(question, found, _console())
        outputs.put("--json", json_file, json.dumps(figures(question, found), indent=1) + "\n")
        if html is not None:
            outputs.put("--html", html, page(question, found))
        if write is not None:
            outputs.put("--write", write, _served(manifest(question, found.chosen), question))
    except Refused as failure:
        typer.echo(str(failure), err=True)
        raise typer.Exit(REFUSED) from failure
    except ValueError as failure:
        errors.print(f"[red]error:[/red] {escape(str(failure))}", highlight=False, soft_wrap=True)
        raise typer.Exit(UNUSABLE) from failure
    if found.chosen.both < question.question.goal.attainment:
        typer.echo("nothing keeps the promise in play; the figures are those of what comes nearest", err=True)
        raise typer.Exit(NOTHING_SERVES)


def _served(text: str, question: Planned) -> str:
    """Give a manifest that the operator takes. Raises `Refused` with its reasons where what was planned is none."""
    service, reasons = refused(yaml.safe_load(text), question.known)
    if service is None or reasons:
        raise Refused("\n".join(["--write: nothing is written, since the operator would refuse it:", *reasons]))
    return text


def _with_effect(given: frozenset[str]) -> None:
    """Raise ValueError for flags that would be dropped, naming what they clash with."""
    if "--profile" in given:
        flags.unused(
            given, OF_MODELS, "with --profile, which is all that is known of the engine", "leave out one of the two"
        )
        if "--trace" not in given:
            raise ValueError("--profile needs --trace, whose requests are played")
        return
    flags.unused(given, ("--rates",), "without --profile", "give one load with --rate, or an engine's --profile")
    if "--file" in given and "--config" not in given:
        flags.unused(given, ("--model",), "with --file, whose model is planned", "leave out one of the two")
    if "--trace" in given:
        flags.unused(given, OF_LENGTHS, "with --trace, whose lengths are taken", "leave out one of the two")


def _share(percent: float | None) -> float:
    """The share of requests that is promised."""
    wanted = DEFAULT_PERCENT if percent is None else percent
    if not 0 < wanted < 100:
        raise ValueError(f"--attainment is {wanted:g}; it is a percentage above 0 and below 100")
    return wanted / 100


def _console() -> Console:
    return Console() if sys.stdout.isatty() else Console(width=WIDTH)

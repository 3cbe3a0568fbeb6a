"""Plays the burst: services up, three equal loads at once, figures and a page."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from rich.console import Console
from rich.live import Live

from e2e import monitoring
from e2e.cache import REPOSITORY
from e2e.demo.burst import account, fleet, load, show
from e2e.demo.burst.account import Figures
from e2e.demo.burst.fleet import LEAST, Size
from e2e.demo.burst.hindsight import fewest
from e2e.demo.burst.load import PHASES, Phase
from e2e.demo.burst.page import page
from e2e.demo.burst.watch import Watch
from e2e.load import Bounds, Result, Running, Schedule, Spec, start_load
from e2e.platform import Platform

OUT = REPOSITORY / "e2e" / "out"
RESULT, PAGE, TRACE = OUT / "burst.json", OUT / "burst.html", OUT / "burst.csv"
AUTO, OFF, HINDSIGHT = "auto", "off", "hindsight"
_PATIENCE_SECONDS = 600.0  # of a client: the service at the minimum lets some wait for minutes
_LINE_EVERY = 20.0


@dataclass(frozen=True)
class Played:
    """What came of it, by the service's name."""

    figures: dict[str, Figures]
    sizes: dict[str, Size]
    foretold: float  # attainment of the hindsight size, by the simulator


def play(
    platform: Platform, console: Console, say: Callable[[str], None], phases: tuple[Phase, ...] = PHASES
) -> Played:
    """Everything from an installed platform to `e2e/out/burst.{json,html,csv}`; the services are removed at the end."""
    arrivals = load.schedule(phases)
    load.write(arrivals, TRACE)
    size, foretold = fewest(arrivals)
    say(f"by the simulator, {size} are the fewest replicas that hold the objectives over the burst ({foretold:.1%})")
    sizes = {AUTO: LEAST, OFF: LEAST, HINDSIGHT: size}
    fleet.remove(platform)
    say("Prometheus, and the operator that reads it")
    monitoring.install(platform, console)
    monitoring.connect_operator(platform)
    say(f"three services on an imaginary accelerator: {', '.join(f'{name} {size}' for name, size in sizes.items())}")
    fleet.serve(platform, sizes, AUTO)
    try:
        results, watch = _run(platform, console, say, arrivals, list(sizes))
    finally:
        fleet.remove(platform, wait=False)
    found = {name: account.figures(results[name], watch.samples[name]) for name in sizes}
    account.write(found, RESULT)
    PAGE.write_text(page(found, sizes, results, watch, phases))
    return Played(found, sizes, foretold)


def _run(
    platform: Platform, console: Console, say: Callable[[str], None], arrivals: Schedule, names: list[str]
) -> tuple[dict[str, Result], Watch]:
    """The loads, from their common start to the end of their last request."""
    with ExitStack() as stack:
        way = stack.enter_context(fleet.reach(platform, names))
        bounds = Bounds(request=_PATIENCE_SECONDS, silence=_PATIENCE_SECONDS)
        specs = [Spec(way.targets[name], arrivals, bounds, objectives=fleet.OBJECTIVES, title=name) for name in names]
        runs = {spec.title: stack.enter_context(start_load(spec, way.launch)) for spec in specs}
        began = next(iter(runs.values())).began
        watch = stack.enter_context(Watch(platform, fleet.NAMESPACE, names, lambda: time.monotonic() - began))
        _look_on(console, say, watch, runs, began)
        return {name: run.result() for name, run in runs.items()}, watch


def _look_on(
    console: Console, say: Callable[[str], None], watch: Watch, runs: dict[str, Running], began: float
) -> None:
    with Live(console=console, auto_refresh=False, transient=True) as live:
        told = 0.0
        while not all(run.done() for run in runs.values()):
            seconds = time.monotonic() - began
            if console.is_terminal:
                live.update(show.picture(watch, runs, seconds), refresh=True)
            elif seconds >= told:
                say(show.line(watch, runs, seconds))
                told += _LINE_EVERY
            time.sleep(0.5)

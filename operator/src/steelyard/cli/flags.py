"""Flags as they were typed: their names, whether they were given, and values that could never make sense."""

from collections.abc import Iterable
from math import inf, isfinite

import typer

from steelyard.api.quantities import Duration
from steelyard.decide.accept import LONGEST_SECONDS, SHORTEST_SECONDS


def seconds(text: str) -> float:
    """Read a duration such as 500ms, 1.5s or 5m, or a number of seconds."""
    try:
        return Duration(text).seconds
    except ValueError as failure:
        raise typer.BadParameter(str(failure)) from failure


def given(context: typer.Context) -> frozenset[str]:
    """The longest spellings of the flags that were typed: --rate, --json. A default is not typed."""
    return frozenset(
        max(parameter.opts, key=len)
        for parameter in context.command.params
        if parameter.name is not None
        and (source := context.get_parameter_source(parameter.name)) is not None
        and source.name == "COMMANDLINE"
    )


def unused(typed: Iterable[str], flags: Iterable[str], cause: str, remedy: str) -> None:
    """Raise ValueError where flags were typed that have no effect, naming them and what they clash with."""
    found = [flag for flag in flags if flag in set(typed)]
    if found:
        verb = "has" if len(found) == 1 else "have"
        raise ValueError(f"{', '.join(found)} {verb} no effect {cause}; {remedy}")


def above_zero(flag: str, value: float | None, most: float = inf) -> None:
    """Raise ValueError where a number was given that is not finite, not above 0, or above `most`."""
    if value is not None and not (isfinite(value) and 0 < value <= most):
        limit = "" if most == inf else f" and at most {most:.10g}"
        raise ValueError(f"{flag} is {value:.10g}; it must be a number above 0{limit}")


def within(flag: str, value: float | None, least: float, most: float) -> None:
    """Raise ValueError where a number was given that lies outside of its bounds."""
    if value is not None and not least <= value <= most:
        raise ValueError(f"{flag} is {value:.10g}; it must lie between {least:.10g} and {most:.10g}")


def objective(flag: str, value: float | None) -> None:
    """Raise ValueError for an objective that a manifest could not have."""
    if value is not None and not SHORTEST_SECONDS <= value <= LONGEST_SECONDS:
        raise ValueError(f"{flag} is {value:g} s; it must be at least 1ms and at most 168h, as in a manifest")

"""What the status says of the objectives: figures rounded for people, and the condition ObjectivesMet."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from steelyard.api.reasons import ConditionType, Reason
from steelyard.api.service import InferenceService
from steelyard.decide.conditions import Verdict


@dataclass(frozen=True)
class Latency:
    """One latency over the window: the share that met its objective, and p50, p95, p99 in seconds; None is unknown."""

    met: float | None
    percentiles: tuple[float | None, ...]


@dataclass(frozen=True)
class Attained:
    """Of `requests` judged ones, the share that met all objectives, and each latency."""

    requests: float | None  # None: engines' histograms do not tell whole requests
    met: float | None
    ttft: Latency
    tpot: Latency


def objectives(found: Attained | None) -> dict[str, Any]:
    """The status field `objectives`; a figure that is not known is left out."""
    if found is None:
        return {}
    fields: dict[str, Any] = {"timeToFirstToken": _latency(found.ttft), "timePerOutputToken": _latency(found.tpot)}
    fields["attainment"] = _percent(found.met)
    return {name: value for name, value in fields.items() if value not in (None, {})}


def objectives_met(service: InferenceService, found: Attained | None) -> Verdict:
    """Do enough requests meet the objectives?

    | state | status | reason |
    |---|---|---|
    | no objective is set | Unknown | NoObjectives |
    | nothing was judged in the window, or it is not known | Unknown | NotMeasured |
    | the share is at or above the objective | True | Attained |
    | else | False | Missed |
    """
    kind, goals = ConditionType.OBJECTIVES_MET, service.spec.objectives
    named = {"TTFT": goals.time_to_first_token, "TPOT": goals.time_per_output_token}
    wanted = ", ".join(f"{name} {value}" for name, value in named.items() if value is not None)
    if not wanted:
        return Verdict(kind, "Unknown", Reason.NO_OBJECTIVES, "spec.objectives names no latency")
    asked = f"{wanted} for {goals.attainment:g} % of requests over {goals.window}"
    if found is None or found.met is None:
        return Verdict(kind, "Unknown", Reason.NOT_MEASURED, f"{asked}; no request was judged in that time")
    share = _percent(found.met)
    held = 100 * found.met >= goals.attainment
    return Verdict(
        kind, "True" if held else "False", Reason.ATTAINED if held else Reason.MISSED, f"{share} % met {asked}"
    )


def _latency(found: Latency) -> Mapping[str, Any]:
    fields: dict[str, Any] = {"attainment": _percent(found.met)}
    fields |= dict(zip(("p50", "p95", "p99"), map(_duration, found.percentiles), strict=True))
    known = {name: value for name, value in fields.items() if value is not None}
    return known if len(known) > 1 else {}  # a share alone, of an objective that nobody set, says nothing


def _percent(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 1)


def _duration(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return f"{seconds:.3g}s" if seconds >= 1 else f"{1000 * seconds:.3g}ms"

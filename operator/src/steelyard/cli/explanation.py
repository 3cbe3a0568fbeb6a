"""Why a service has the replicas it has, as sentences made from its spec and status alone: pure, so that it can be tested on
recorded objects."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from steelyard.api.labels import AGGREGATED, DECODE, PREFILL

Body = Mapping[str, Any]
ROLES = (PREFILL, DECODE, AGGREGATED)


@dataclass(frozen=True)
class Explanation:
    """What `steelyard explain` shows, part by part."""

    title: str
    objectives: str
    now: tuple[tuple[str, ...], ...]  # role, ready, starting, draining, wanted, bounds
    needed: str
    because: tuple[str, ...]  # the term that ruled first
    limited_by: str
    would_change: tuple[str, ...]
    history: tuple[str, ...]


def explain(body: Body, now: datetime) -> Explanation:
    """Explain one InferenceService as the API server gives it."""
    meta, spec, status = body["metadata"], body["spec"], body.get("status") or {}
    decision = status.get("decision") or {}
    mode = (spec.get("autoscaling") or {}).get("mode", "Auto")
    return Explanation(
        title=f"{meta['namespace']}/{meta['name']} · mode {mode} · ratio {status.get('ratio', 'none')}",
        objectives=_objectives(spec.get("objectives") or {}, status),
        now=tuple(_row(spec, status, decision, role) for role in ROLES if role in status),
        needed=_needed(decision, now),
        because=tuple(decision.get("because") or ()),
        limited_by=_limited(status, decision),
        would_change=tuple(_would_change(spec, status, decision, mode)),
        history=tuple(f"{_ago(entry, now)}  {_done(entry)}" for entry in status.get("history") or ()),
    )


def _row(spec: Body, status: Body, decision: Body, role: str) -> tuple[str, ...]:
    counts, bounds = status[role], (spec.get(role) or {}).get("replicas") or {}
    low, high = bounds.get("min", 1), bounds.get("max")
    wanted = decision.get(role, counts.get("desired", 0))
    cells = (counts.get("ready", 0), counts.get("starting", 0), counts.get("draining", 0), wanted)
    return (role, *map(str, cells), f"{low}…{high if high is not None else low}")


def _objectives(promised: Body, status: Body) -> str:
    latencies = {"TTFT": "timeToFirstToken", "TPOT": "timePerOutputToken"}
    named = [f"{short} {promised[name]}" for short, name in latencies.items() if promised.get(name)]
    if not named:
        return "no latency objective is set"
    wanted = f"{' and '.join(named)} for {promised.get('attainment', 95):g} % of requests"
    measured = status.get("objectives") or {}
    if "attainment" not in measured:
        return f"{wanted}; nothing was judged in the last {promised.get('window', '5m')}"
    parts = [
        f"{short} p95 {measured[name]['p95']}"
        for short, name in latencies.items()
        if "p95" in (measured.get(name) or {})
    ]
    said = f"{measured['attainment']:g} % met {wanted} over {promised.get('window', '5m')}"
    return f"{said} ({', '.join(parts)})" if parts else said


def _needed(decision: Body, now: datetime) -> str:
    if not decision:
        return "no decision"
    wanted = ", ".join(f"{role} {decision[role]}" for role in ROLES if role in decision)
    return f"{wanted} (decided {_ago(decision, now)}: {_done(decision)})"


def _done(decision: Body) -> str:
    return f"{decision['action']}{'' if decision.get('applied', True) else ', not carried out'}"


def _limited(status: Body, decision: Body) -> str:
    limit = decision.get("limitedBy", "None")
    if limit in ("None", "Min"):
        return "nothing" if limit == "None" else "a role's minimum: the load needs less"
    stale = limit == "MetricsStale" and _condition(status, "MetricsFresh").get("status") != "True"
    message = _condition(status, "MetricsFresh" if stale else "ScalingLimited").get("message", "")
    return f"{limit}: {message}" if message else str(limit)


def _would_change(spec: Body, status: Body, decision: Body, mode: str) -> Sequence[str]:
    """Say what would lead to another number, most direct first."""
    scaling = spec.get("autoscaling") or {}
    if mode == "Off":
        return ["`kubectl scale` of the Deployments, or spec.autoscaling.mode: Auto"]
    if not decision:
        return ["a Prometheus in the operator's settings (value prometheus.url), which decisions are made from"]
    found = []
    if mode == "Recommend":
        found.append("spec.autoscaling.mode: Auto would carry the decision out; until then nothing is written")
    budget = scaling.get("budget") or {}
    ratio = scaling.get("ratio") or {}
    roles = [role for role in ROLES if role in decision]
    maxima = ", ".join(f"spec.{role}.replicas.max ({_maximum(spec, role)})" for role in roles)
    by_limit = {
        "Budget": f"a larger spec.autoscaling.budget ({_said(budget)})",
        "Max": f"a larger maximum: {maxima}",
        "Ratio": f"wider bounds in spec.autoscaling.ratio ({_said(ratio)})",
        "Min": "more load, or a smaller spec.<role>.replicas.min",
        "MetricsStale": "measurements of every replica over a whole span: after a start or a change they take half a minute",
        "UnknownCost": "spec.pricePerHour of the Accelerator, which the cost budget is counted with",
        "Unschedulable": "nodes with a free accelerator: " + _condition(status, "Progressing").get("message", ""),
        "StartFailing": "replicas that start: " + _condition(status, "Progressing").get("message", ""),
    }
    limit = decision.get("limitedBy", "None")
    if limit in by_limit:
        found.append(by_limit[limit])
    elif decision.get("because"):
        found.append(f"more replicas as soon as the first term asks for more: {decision['because'][0]}")
        found.append(
            "fewer once no term has asked for this many for a minute, or for twice the time a replica takes to start"
        )
    return found


def _maximum(spec: Body, role: str) -> Any:
    bounds = (spec.get(role) or {}).get("replicas") or {}
    return bounds.get("max", bounds.get("min", 1))


def _said(fields: Body) -> str:
    return ", ".join(f"{name} {value}" for name, value in fields.items()) or "none set"


def _condition(status: Body, kind: str) -> Body:
    return next((c for c in status.get("conditions") or () if c["type"] == kind), {})


def _ago(entry: Body, now: datetime) -> str:
    seconds = max(0.0, (now - datetime.fromisoformat(entry["time"])).total_seconds())
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"

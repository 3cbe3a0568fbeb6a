"""The status of a service, computed whole from one snapshot, and the events that its changes are worth.

`status` takes the time as an argument and keeps the transition time of every condition whose status stays, so that the
same world gives the same status and nothing is written.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from steelyard.api.labels import AGGREGATED, DECODE, GATEWAY_PORT, PREFILL
from steelyard.api.reasons import ConditionType, EventReason, Reason
from steelyard.api.status import Condition, Memory, QuantizeStatus, RoleStatus, StartSeconds, Status
from steelyard.decide.conditions import Failure, Verdict, served_roles, verdicts
from steelyard.decide.plan import Plan
from steelyard.decide.replicas import CREATED_WITH
from steelyard.decide.snapshot import Body, Job, Snapshot

MESSAGE_LIMIT = 4096
PROGRESS_LIMIT = 1024


@dataclass(frozen=True)
class Note:
    """An event worth telling: what happened, in one sentence."""

    reason: EventReason
    message: str
    warning: bool = False


def status(snapshot: Snapshot, plan: Plan, failure: Failure | None, now: datetime) -> dict[str, Any]:
    """Compute the status as plain data for the API server."""
    meta = snapshot.service["metadata"]
    before = previous_conditions(snapshot.service)
    conditions = tuple(
        condition(verdict, before.get(verdict.type), int(meta.get("generation") or 0), now)
        for verdict in verdicts(snapshot, plan, failure)
    )
    roles = {role: role_status(snapshot, plan, role) for role in served_roles(snapshot, plan)}
    ready = sum(role.ready for role in roles.values())
    desired = sum(role.desired for role in roles.values())
    ratio = f"{roles[PREFILL].ready}:{roles[DECODE].ready}" if PREFILL in roles and DECODE in roles else None
    return Status(
        observed_generation=meta.get("generation"),
        model=plan.service.served_name if plan.service is not None and roles else None,
        url=f"http://{meta['name']}.{meta['namespace']}.svc:{GATEWAY_PORT}/v1" if roles else None,
        ratio=ratio,
        ready=f"{ready}/{desired}" if roles else None,
        memory=memory(plan),
        rollout=plan.progress,
        quantization=quantization(plan) or None,
        conditions=conditions,
        **roles,  # type: ignore[arg-type]
    ).manifest()


def quantization(plan: Plan) -> tuple[QuantizeStatus, ...]:
    """The Jobs that the engines wait for."""
    steps = plan.quantizing.steps if plan.quantizing is not None else ()
    return tuple(
        QuantizeStatus.read(
            {
                "job": step.order.job,
                "recipe": step.order.recipe,
                "folder": step.order.folder,
                "state": step.state,
                **({"progress": step.words[:PROGRESS_LIMIT]} if step.words else {}),
            }
        )
        for step in steps
    )


def memory(plan: Plan) -> Memory | None:
    """What was computed for the replicas that write answers."""
    if plan.service is None or plan.refusals:
        return None
    counted = next(
        (plan.judgement.memory[role] for role in (DECODE, AGGREGATED) if role in plan.judgement.memory), None
    )
    if counted is None:
        return None
    context = plan.service.spec.model.context_length
    return Memory(
        weights=_gibibytes(counted.weights),
        kv_cache=_gibibytes(max(counted.left, 0.0)),
        other=_gibibytes(counted.fixed - counted.weights),
        available=_gibibytes(counted.available),
        tokens=counted.tokens(context),
        sequences=counted.sequences(context),
    )


def _gibibytes(size: float) -> str:
    return f"{size / 2**30:.3g}Gi" if size >= 2**30 else f"{size / 2**20:.0f}Mi"


def role_status(snapshot: Snapshot, plan: Plan, role: str) -> RoleStatus:
    """Count a role's replicas by what the pods do now; wanted is what its pool's Deployment will ask for, and the pods
    that came to the role from other pools, less those that left it."""
    pods = [pod for pod in snapshot.pods if pod.role == role]
    pool = snapshot.deployment_of(role)
    scaled = next((scale.replicas for scale in plan.scales if scale.pool == role), None)
    wanted = scaled if scaled is not None else (pool.replicas if pool else CREATED_WITH)
    staying = [pod for pod in snapshot.pods if pod.pool and pod.role and not pod.terminating]
    moved = sum((pod.role == role) - (pod.pool == role) for pod in staying)
    return RoleStatus(
        desired=max(0, wanted + moved),
        ready=sum(pod.ready and not pod.terminating for pod in pods),
        starting=sum(not pod.ready and not pod.terminating for pod in pods),
        draining=sum(pod.terminating for pod in pods),
        revision=(pool.revision or None) if pool else None,
        start_seconds=start_seconds(snapshot, role),
    )


def start_seconds(snapshot: Snapshot, pool: str) -> StartSeconds | None:
    """How long the newest replica of a pool took to start, of those whose start was seen; without any, what was told last."""
    starts = [pod.start for pod in snapshot.pods if pod.pool == pool and pod.start is not None and not pod.terminating]
    if not starts:
        return _told_start(snapshot.service, pool)
    newest = max(starts, key=lambda start: start.created)
    spans = {name: round(getattr(newest, name), 1) for name in ("scheduled", "pulled", "weights", "ready", "total")}
    return StartSeconds(**spans)


def _told_start(service: Body, pool: str) -> StartSeconds | None:
    """What status holds of a start; what cannot be read counts as nothing."""
    try:
        body = ((service.get("status") or {}).get(pool) or {}).get("startSeconds")
        return StartSeconds.read(body) if body else None
    except ValueError:
        return None


def transitions(before: Mapping[str, Condition], after: Mapping[str, Any]) -> tuple[Note, ...]:
    """Tell which changes of the conditions are worth an event: acceptance, availability, pause, a rollout that waits and goes
    on, a fault of ours, and a container that the kernel killed: nobody else tells that, and the condition is over as soon as
    it runs again."""
    now = {condition["type"]: condition for condition in after.get("conditions", ())}
    found = []
    for kind, yes, no in (
        (ConditionType.ACCEPTED, EventReason.ACCEPTED, EventReason.REJECTED),
        (ConditionType.AVAILABLE, EventReason.AVAILABLE, EventReason.UNAVAILABLE),
        (ConditionType.PAUSED, EventReason.PAUSED, EventReason.RESUMED),
    ):
        old, new = before.get(kind), now[kind]
        was = old.status if old else {ConditionType.ACCEPTED: None}.get(kind, "False")
        changed = was != new["status"]
        if kind is ConditionType.ACCEPTED and old is not None and new["status"] == "False":
            changed = changed or old.message != new["message"]  # refused for another reason
        if changed:
            holds = new["status"] == "True"
            bad = not holds and kind is not ConditionType.PAUSED
            found.append(Note(yes if holds else no, new["message"], warning=bad))
    old, new = before.get(ConditionType.PROGRESSING), now[ConditionType.PROGRESSING]
    waited, waits = old is not None and old.reason == Reason.ROLLOUT_PAUSED, new["reason"] == Reason.ROLLOUT_PAUSED
    if waits and not waited:
        found.append(Note(EventReason.ROLLOUT_PAUSED, new["message"], warning=True))
    elif waited and not waits:
        found.append(Note(EventReason.ROLLOUT_RESUMED, new["message"]))
    had, has = before.get(ConditionType.MODEL_READY), now[ConditionType.MODEL_READY]
    if has["reason"] == Reason.QUANTIZE_FAILED and (had is None or had.reason != Reason.QUANTIZE_FAILED):
        found.append(Note(EventReason.QUANTIZE_FAILED, has["message"], warning=True))
    if new["reason"] == Reason.INTERNAL_ERROR and (old is None or old.reason != Reason.INTERNAL_ERROR):
        found.append(Note(EventReason.RECONCILE_FAILED, new["message"], warning=True))
    if new["reason"] == Reason.OUT_OF_MEMORY and (old is None or old.message != new["message"]):
        found.append(Note(EventReason.OUT_OF_MEMORY, new["message"], warning=True))
    return tuple(found)


def quantized(service: Body, after: Mapping[str, Any], jobs: Iterable[Job]) -> tuple[Note, ...]:
    """Tell that the Jobs of which status told have made their checkpoints, once all of them are seen to be done: a spec that
    needs them no more, a pause or a refusal takes them out of status too."""
    waited = (service.get("status") or {}).get("quantization") or ()
    done = {job.name for job in jobs if job.done}
    if not waited or after.get("quantization") or not all(step.get("job") in done for step in waited):
        return ()
    made = "; ".join(f"{step.get('recipe')} is in folder {step.get('folder')}, by Job {step['job']}" for step in waited)
    return (Note(EventReason.QUANTIZED, made),)


def scaling_transitions(before: Mapping[str, Condition], verdicts: Iterable[Verdict]) -> tuple[Note, ...]:
    """Tell which changes of the autoscaler's conditions are worth an event: metrics lost and back, a limit reached,
    objectives missed and met again."""
    found = []
    for verdict in verdicts:
        old = before.get(verdict.type)
        was = old.status if old else None
        if verdict.type is ConditionType.METRICS_FRESH:
            if verdict.status == "False" and (old is None or was != "False" or old.reason != verdict.reason):
                found.append(Note(EventReason.METRICS_LOST, verdict.message, warning=True))
            elif verdict.status == "True" and was == "False":
                found.append(Note(EventReason.METRICS_BACK, verdict.message))
        elif verdict.type is ConditionType.SCALING_LIMITED:
            if verdict.status == "True" and (old is None or was != "True" or old.reason != verdict.reason):
                found.append(Note(EventReason.SCALING_LIMITED, verdict.message, warning=True))
        elif verdict.type is ConditionType.OBJECTIVES_MET:
            if verdict.status == "False" and was != "False":
                found.append(Note(EventReason.OBJECTIVES_MISSED, verdict.message, warning=True))
            elif verdict.status == "True" and was == "False":
                found.append(Note(EventReason.OBJECTIVES_MET, verdict.message))
    return tuple(found)


def previous_conditions(service: Body) -> dict[str, Condition]:
    """Read the conditions that the service holds; one that cannot be read counts as absent."""
    found = {}
    for body in (service.get("status") or {}).get("conditions") or ():
        try:
            condition = Condition.read(body)
        except ValueError:
            continue
        found[condition.type] = condition
    return found


def condition(verdict: Verdict, before: Condition | None, generation: int, now: datetime) -> Condition:
    """Give a verdict its times; one whose status stays keeps the time when it began."""
    same = before is not None and before.status == verdict.status
    return Condition(
        type=str(verdict.type),
        status=verdict.status,
        reason=str(verdict.reason),
        message=verdict.message[:MESSAGE_LIMIT],
        last_transition_time=before.last_transition_time if before is not None and same else now.replace(microsecond=0),
        observed_generation=generation,
    )

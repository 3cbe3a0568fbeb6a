"""The conditions of a service, one function each; the docstring of a function is its truth table, first row that holds.

A condition says what is; events tell what changed. Nothing here reads a clock: `status.py` sets transition times.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from steelyard.api.labels import AGGREGATED, DECODE, PREFILL
from steelyard.api.reasons import ConditionType, Reason
from steelyard.catalog.engines import ENGINES
from steelyard.decide import accept
from steelyard.decide.plan import Plan
from steelyard.decide.quantizing import Quantizing
from steelyard.decide.snapshot import Snapshot, Trouble, Weights

Truth = Literal["True", "False", "Unknown"]

NOT_READY: Mapping[str, Reason] = {
    PREFILL: Reason.PREFILL_NOT_READY,
    DECODE: Reason.DECODE_NOT_READY,
    AGGREGATED: Reason.AGGREGATED_NOT_READY,
}
MODES = {"Auto": Reason.MODE_AUTO, "Recommend": Reason.MODE_RECOMMEND, "Off": Reason.MODE_OFF}


@dataclass(frozen=True)
class Verdict:
    """One condition without its times."""

    type: ConditionType
    status: Truth
    reason: Reason
    message: str


@dataclass(frozen=True)
class Failure:
    """Why this reconcile did not get through: the API refused a child, something is still in the way, or our fault."""

    reason: Reason
    message: str
    refused: bool  # the user has to act; False: it will be tried again


def verdicts(snapshot: Snapshot, plan: Plan, failure: Failure | None) -> tuple[Verdict, ...]:
    """Compute every condition, in the order in which a reader asks: is it right, is it moving, does it serve.

    Whether the objectives are met is left to the autoscaler where there is one: it alone measures.
    """
    return (
        accepted(plan, failure),
        objectives_feasible(plan),
        model_ready(snapshot, plan),
        progressing(snapshot, plan, failure),
        available(snapshot, plan),
        *(() if plan.autoscaled else (objectives_met(plan),)),
        scaling_active(plan),
        paused(plan),
    )


def accepted(plan: Plan, failure: Failure | None) -> Verdict:
    """Can the spec be served?

    | state | status | reason |
    |---|---|---|
    | refused by a check | False | the first refusal's |
    | a child was refused by the API server, or its name is taken | False | that |
    | else | True | Valid, with what was found and is no refusal |
    """
    if plan.refusals:
        return Verdict(
            ConditionType.ACCEPTED, "False", plan.refusals[0].reason, accept.message(plan.refusals) + _kept(plan)
        )
    if failure is not None and failure.refused:
        return Verdict(ConditionType.ACCEPTED, "False", failure.reason, failure.message)
    told = "; ".join(["the spec can be served", *(f"note: {finding}" for finding in plan.judgement.warned)])
    return Verdict(ConditionType.ACCEPTED, "True", Reason.VALID, told)


def objectives_feasible(plan: Plan) -> Verdict:
    """Is every objective above what the hardware's peak allows for one request alone?

    | state | status | reason |
    |---|---|---|
    | the spec cannot be read or is refused | Unknown | NotAccepted |
    | no objective is set | Unknown | NoObjectives |
    | the model's shape or the hardware's figures are not known | Unknown | NotEnoughFacts |
    | an objective is below the bound | False | Unreachable |
    | else | True | Feasible |
    """
    kind, reach = ConditionType.OBJECTIVES_FEASIBLE, plan.judgement.reach
    if plan.service is None or plan.refusals:
        return Verdict(kind, "Unknown", Reason.NOT_ACCEPTED, "nothing is compared for a spec that is not accepted")
    goals = plan.service.spec.objectives
    if goals.time_to_first_token is None and goals.time_per_output_token is None:
        return Verdict(kind, "Unknown", Reason.NO_OBJECTIVES, "spec.objectives names no latency")
    if reach is None:
        said = "bounds need the facts of the model (spec.model.shape) and the figures of the accelerator"
        return Verdict(kind, "Unknown", Reason.NOT_ENOUGH_FACTS, said)
    if reach.problems:
        return Verdict(kind, "False", Reason.UNREACHABLE, "; ".join(reach.problems))
    return Verdict(kind, "True", Reason.FEASIBLE, f"by the hardware's peak {reach.words}")


def model_ready(snapshot: Snapshot, plan: Plan) -> Verdict:
    """Are the weights where the engines read them?

    | state | status | reason |
    |---|---|---|
    | nothing was ever accepted | Unknown | NotAccepted |
    | the engine reads no weights | True | WeightsLoaded |
    | a Job quantizes them, cannot start, or failed | False | Quantizing, WeightsUnavailable, QuantizeFailed |
    | a pod has them | True | WeightsLoaded |
    | a pod could not get them | False | WeightsUnavailable |
    | else | False | WeightsLoading |
    """
    kind = ConditionType.MODEL_READY
    if plan.service is None or (plan.refusals and snapshot.current is None):
        return Verdict(kind, "Unknown", Reason.NOT_ACCEPTED, "no accepted spec yet")
    if not ENGINES[plan.service.spec.engine.name].model_schemes:
        return Verdict(kind, "True", Reason.WEIGHTS_LOADED, "this engine reads no weights")
    if plan.quantizing is not None:
        return Verdict(kind, "False", *_quantizing(plan.quantizing))
    engines = [pod for pod in snapshot.pods if pod.pool and not pod.terminating]
    if any(pod.weights is Weights.LOADED for pod in engines):
        return Verdict(kind, "True", Reason.WEIGHTS_LOADED, f"weights of {plan.service.spec.model.uri} are in place")
    for pod in engines:
        if pod.weights is Weights.FAILED:
            message = pod.trouble.message if pod.trouble else "the container that brings the weights failed"
            return Verdict(kind, "False", Reason.WEIGHTS_UNAVAILABLE, f"spec.model.uri: {message}")
    return Verdict(kind, "False", Reason.WEIGHTS_LOADING, "no pod has the weights yet")


def progressing(snapshot: Snapshot, plan: Plan, failure: Failure | None) -> Verdict:
    """Is the cluster moving towards the spec?

    | state | status | reason |
    |---|---|---|
    | paused | False | PauseAnnotation |
    | refused | False | NotAccepted |
    | this reconcile met an obstacle | True | the obstacle's |
    | this reconcile failed by itself | False | InternalError |
    | a rollout waits, since the objectives are missed | False | RolloutPaused |
    | a Deployment or a pod is stuck (Unschedulable, ImageUnavailable, EngineCrashing, OutOfMemory, …) | False | that |
    | weights are quantized | True | Quantizing |
    | the Job for that cannot start, or failed | False | WeightsUnavailable, QuantizeFailed |
    | a Deployment is being rolled | True | RollingOut |
    | a pod is leaving | True | ReplicasDraining |
    | a pod is not ready, or fewer run than wanted | True | ReplicasStarting |
    | else | False | UpToDate |
    """
    kind = ConditionType.PROGRESSING
    if plan.paused:
        return Verdict(kind, "False", Reason.PAUSE_ANNOTATION, "paused by annotation")
    if plan.refusals or (failure is not None and failure.refused):
        return Verdict(kind, "False", Reason.NOT_ACCEPTED, "the spec is not accepted; the last good children stay")
    if failure is not None:
        status: Truth = "False" if failure.reason is Reason.INTERNAL_ERROR else "True"
        return Verdict(kind, status, failure.reason, failure.message)
    if plan.progress is not None and plan.progress.paused is not None:
        return Verdict(kind, "False", Reason.ROLLOUT_PAUSED, f"the rollout waits: {plan.progress.paused}")
    trouble = _trouble(snapshot)
    if trouble is not None:
        return Verdict(kind, "False", trouble.reason, trouble.message + _goes_on_serving(plan))
    if plan.quantizing is not None:
        reason, message = _quantizing(plan.quantizing)
        goes_on: Truth = "True" if reason is Reason.QUANTIZING else "False"
        return Verdict(kind, goes_on, reason, message + _kept(plan))
    rolling = [d.name for d in snapshot.deployments if not d.observed or d.updated < d.replicas]
    if plan.rollout is not None:
        return Verdict(kind, "True", Reason.ROLLING_OUT, f"new replicas that are ready: {plan.rollout}")
    if rolling or plan.render:
        message = f"rolling out {', '.join(rolling)}" if rolling else "children are being applied"
        return Verdict(kind, "True", Reason.ROLLING_OUT, message)
    leaving = sum(pod.terminating for pod in snapshot.pods)
    if leaving:
        return Verdict(kind, "True", Reason.REPLICAS_DRAINING, f"{leaving} replicas finish their work and leave")
    missing = [f"{d.name} {d.ready}/{d.replicas}" for d in snapshot.deployments if d.ready < d.replicas]
    if missing:
        return Verdict(kind, "True", Reason.REPLICAS_STARTING, f"ready: {', '.join(missing)}")
    return Verdict(kind, "False", Reason.UP_TO_DATE, "everything wanted runs")


def available(snapshot: Snapshot, plan: Plan) -> Verdict:
    """Are requests answered now?

    | state | status | reason |
    |---|---|---|
    | nothing was ever accepted | False | NotAccepted |
    | nothing runs before the weights are quantized | False | Quantizing, WeightsUnavailable, QuantizeFailed |
    | no gateway is ready | False | GatewayNotReady |
    | a role has no ready pod | False | <Role>NotReady |
    | else | True | Serving |
    """
    kind = ConditionType.AVAILABLE
    roles = served_roles(snapshot, plan)
    if not roles and plan.quantizing is not None:
        return Verdict(kind, "False", *_quantizing(plan.quantizing))
    if not roles:
        return Verdict(kind, "False", Reason.NOT_ACCEPTED, "no accepted spec yet")
    gateway = snapshot.deployment_of("")
    if gateway is None or gateway.ready == 0:
        return Verdict(kind, "False", Reason.GATEWAY_NOT_READY, "no gateway pod is ready")
    for role in roles:
        if not any(pod.role == role and pod.ready and not pod.terminating for pod in snapshot.pods):
            return Verdict(kind, "False", NOT_READY[role], f"no {role} pod is ready")
    return Verdict(kind, "True", Reason.SERVING, "the gateway and every role have a ready pod")


def objectives_met(plan: Plan) -> Verdict:
    """Do enough requests meet the objectives?

    | state | status | reason |
    |---|---|---|
    | the spec cannot be read or is refused | Unknown | NotAccepted |
    | no objective is set | Unknown | NoObjectives |
    | attainment is not known | Unknown | NotMeasured |
    """
    kind = ConditionType.OBJECTIVES_MET
    if plan.service is None or plan.refusals:
        return Verdict(kind, "Unknown", Reason.NOT_ACCEPTED, "nothing is measured for a spec that is not accepted")
    goals = plan.service.spec.objectives
    named = {"TTFT": goals.time_to_first_token, "TPOT": goals.time_per_output_token}
    wanted = ", ".join(f"{name} {value}" for name, value in named.items() if value is not None)
    if not wanted:
        return Verdict(kind, "Unknown", Reason.NO_OBJECTIVES, "spec.objectives names no latency")
    said = f"{wanted} for {goals.attainment:g} % of requests over {goals.window}; attainment is not known yet"
    return Verdict(kind, "Unknown", Reason.NOT_MEASURED, said)


def scaling_active(plan: Plan) -> Verdict:
    """Does the operator write numbers of replicas?

    | state | status | reason |
    |---|---|---|
    | the spec cannot be read or is refused | Unknown | NotAccepted |
    | paused | False | PauseAnnotation |
    | mode Auto | True | ModeAuto |
    | mode Recommend, Off | False | ModeRecommend, ModeOff |
    """
    kind = ConditionType.SCALING_ACTIVE
    if plan.service is None or plan.refusals:
        return Verdict(kind, "Unknown", Reason.NOT_ACCEPTED, "no decisions are taken for a spec that is not accepted")
    if plan.paused:
        return Verdict(kind, "False", Reason.PAUSE_ANNOTATION, "paused by annotation")
    mode = plan.service.spec.autoscaling.mode
    ours = "follow the load and the objectives" if plan.autoscaled else "are kept within min and max"
    said = ours if mode == "Auto" else "are left to `kubectl scale` or another autoscaler"
    return Verdict(kind, "True" if mode == "Auto" else "False", MODES[mode], f"replicas {said}")


def paused(plan: Plan) -> Verdict:
    """Is everything held by the annotation? True/PauseAnnotation with it, else False/NotPaused."""
    if plan.paused:
        message = "nothing is changed until the annotation serving.steelyard.dev/paused is removed"
        return Verdict(ConditionType.PAUSED, "True", Reason.PAUSE_ANNOTATION, message)
    return Verdict(ConditionType.PAUSED, "False", Reason.NOT_PAUSED, "the operator acts on this service")


def served_roles(snapshot: Snapshot, plan: Plan) -> tuple[str, ...]:
    """Name the roles that must run: the spec's, or those of the last good children while the spec is refused or waits for
    its weights."""
    if plan.service is not None and not plan.refusals and plan.quantizing is None:
        return tuple(plan.service.spec.roles)
    pools = tuple(deployment.pool for deployment in snapshot.deployments if deployment.pool)
    return tuple(role for role in (PREFILL, DECODE, AGGREGATED) if role in pools)


def _quantizing(waits: Quantizing) -> tuple[Reason, str]:
    if (failed := waits.failed) is not None:
        remedy = f"correct the spec, or delete Job {failed.order.job} to try again"
        return Reason.QUANTIZE_FAILED, f"{failed.order.recipe} could not be made ({remedy}): {failed.words}"
    if (stuck := waits.stuck) is not None:
        said = f"{stuck.order.recipe} cannot be made, since Job {stuck.order.job} cannot start ({stuck.remedy})"
        return Reason.WEIGHTS_UNAVAILABLE, f"{said}: {stuck.words}"
    return Reason.QUANTIZING, str(waits)


def _trouble(snapshot: Snapshot) -> Trouble | None:
    for deployment in snapshot.deployments:
        if deployment.trouble is not None:
            return Trouble(deployment.trouble.reason, f"{deployment.name}: {deployment.trouble.message}")
    for pod in snapshot.pods:
        if pod.trouble is not None and not pod.terminating:
            return Trouble(pod.trouble.reason, f"{pod.name}: {pod.trouble.message}")
    return None


def _goes_on_serving(plan: Plan) -> str:
    if plan.rollout is None:
        return ""
    told = f"; the rollout is at {plan.rollout} and replicas of the earlier spec go on serving"
    return f"{told}: correct the spec, or apply the earlier one"


def _kept(plan: Plan) -> str:
    return "; the last accepted spec stays in force" if plan.keep is not None else ""

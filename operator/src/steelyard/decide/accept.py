"""May this spec be served? An ordered list of small checks, each giving every violation it finds, with its remedy.

What a schema or a CEL rule can see is refused by the API server; here is what needs the catalogue, the other fields of
the spec, or the form of free text. A refused service keeps its last good children and gets no new ones.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from steelyard.api.accelerator import Accelerator
from steelyard.api.names import LABEL_LIMIT, SUFFIXES
from steelyard.api.reasons import Reason
from steelyard.api.service import InferenceService
from steelyard.catalog.engines import ENGINES
from steelyard.decide import abilities, pod_memory, schedule, smuggling
from steelyard.decide.feasibility.judge import Judgement
from steelyard.decide.feasibility.service import judged

Accelerators = Mapping[str, Accelerator | None]

_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
MESSAGE_LIMIT = 4000
SHORTEST_SECONDS = 0.001  # of any span of time
LONGEST_SECONDS = 7 * 86_400.0  # a pod that leaves waits as long as its longest request may take


LEAST_ATTAINMENT = 1  # percent


@dataclass(frozen=True)
class Refusal:
    """One reason why a spec cannot be served."""

    reason: Reason
    field: str
    value: str
    problem: str  # what is wrong with it and what to do, in one or two clauses

    def __str__(self) -> str:
        return f"{self.field}: {self.value}: {self.problem}"


Check = Callable[[InferenceService, Accelerators], Iterator[Refusal]]


def unreadable(error: ValidationError) -> tuple[Refusal, ...]:
    """Turn the type checker's findings into refusals; they occur where the installed CRD is another version's."""
    found = []
    for detail in error.errors(include_url=False):
        field = ".".join(str(part) for part in detail["loc"])
        found.append(Refusal(Reason.INVALID_SPEC, field, _input(detail), detail["msg"].removeprefix("Value error, ")))
    return tuple(found)


def refusals(
    service: InferenceService, accelerators: Accelerators, judgement: Judgement | None = None
) -> tuple[Refusal, ...]:
    """Run all checks in order and give every violation once; what feasibility refuses comes last.

    `judgement` is that of the same service and hardware, where the caller has it already.
    """
    found = [refusal for check in CHECKS for refusal in check(service, accelerators)]
    told = {(refusal.field, refusal.value) for refusal in found}
    found += [
        Refusal(one.reason, one.field, one.value, one.problem)
        for one in (judged(service, accelerators) if judgement is None else judgement).refused
        if (one.field, one.value) not in told  # one reason for a setting is enough
    ]
    return tuple(dict.fromkeys(found))


def message(found: tuple[Refusal, ...]) -> str:
    """Join refusals into the message of the condition `Accepted`."""
    text = "; ".join(str(refusal) for refusal in found)
    return text if len(text) <= MESSAGE_LIMIT else text[: MESSAGE_LIMIT - 1] + "…"


def _name(service: InferenceService, _: Accelerators) -> Iterator[Refusal]:
    name = service.name
    if len(name) > LABEL_LIMIT or not _NAME.fullmatch(name):
        problem = (
            f"it names a Service, so it needs at most {LABEL_LIMIT} lower-case letters, digits and '-', "
            "a letter first; create the service under such a name"
        )
        yield Refusal(Reason.INVALID_SPEC, "metadata.name", name, problem)
    for suffix in SUFFIXES:
        if name.endswith(f"-{suffix}"):
            problem = f"'-{suffix}' is the ending of another service's children; create the service under another name"
            yield Refusal(Reason.INVALID_SPEC, "metadata.name", name, problem)


def _model_source(service: InferenceService, _: Accelerators) -> Iterator[Refusal]:
    engine, uri = service.spec.engine.name, service.spec.model.uri
    schemes, cached = ENGINES[engine].model_schemes, service.spec.model.cache.kind != "none"
    if schemes and uri.split("://")[0] not in (*schemes, *(("hf",) if cached else ())):
        known = " or ".join(f"{scheme}://" for scheme in schemes)
        problem = (
            f"engine {engine} takes its weights from {known}, or from hf:// by way of spec.model.cache; put them into an"
            " image or on a claim, or set the cache"
        )
        yield Refusal(Reason.MODEL_SOURCE_NOT_SUPPORTED, "spec.model.uri", uri, problem)
    if cached and not schemes:
        problem = f"engine {engine} reads no weights; leave it none"
        yield Refusal(Reason.SETTING_NOT_SUPPORTED, "spec.model.cache.kind", service.spec.model.cache.kind, problem)


def _accelerators(service: InferenceService, accelerators: Accelerators) -> Iterator[Refusal]:
    engine = ENGINES[service.spec.engine.name]
    for role in service.spec.roles:
        name = service.spec.accelerator_of(role)
        field = f"spec.{role}.accelerator" if service.spec.roles[role].accelerator else "spec.accelerator"
        accelerator = accelerators.get(name)
        if accelerator is None:
            known = ", ".join(sorted(key for key, value in accelerators.items() if value is not None))
            problem = "there is no Accelerator of that name; see `kubectl get accelerators`"
            problem += f" (known to this service: {known})" if known else ""
            yield Refusal(Reason.UNKNOWN_ACCELERATOR, field, name, problem)
        elif engine.needs_hardware and accelerator.spec.availability == "Announced":
            problem = "it is announced, not available; name available hardware, or rehearse with engine simulated"
            yield Refusal(Reason.ACCELERATOR_NOT_AVAILABLE, field, name, problem)
        elif engine.processors_only and accelerator.spec.resource is not None:
            problem = (
                f"engine {service.spec.engine.name} computes on plain processors; name cpu, or engine vllm, sglang,"
                " tensorrt-llm or simulated"
            )
            yield Refusal(Reason.INVALID_SPEC, field, name, problem)


def _simulation(service: InferenceService, accelerators: Accelerators) -> Iterator[Refusal]:
    """The simulated engine keeps time by the accelerator's figures and the model's shape, so both must be known."""
    if service.spec.engine.name != "simulated":
        return
    shape = service.spec.model.shape
    needed = {"parameters": "parameters", "layers": "layers", "hidden_size": "hiddenSize"}
    missing = [wire for field, wire in needed.items() if shape is None or getattr(shape, field) is None]
    if missing:
        problem = f"engine simulated keeps time by the model's shape and needs {', '.join(missing)}"
        yield Refusal(Reason.INVALID_SPEC, "spec.model.shape", "(incomplete)" if shape else "(absent)", problem)
    for name in sorted({service.spec.accelerator_of(role) for role in service.spec.roles}):
        accelerator = accelerators.get(name)
        if accelerator is None:
            continue
        peak = accelerator.spec.peak
        if accelerator.spec.memory_bandwidth is None or not (peak.bf16 or peak.fp32):
            problem = "engine simulated needs memoryBandwidth and peak.bf16 or peak.fp32 of this Accelerator"
            yield Refusal(Reason.INVALID_SPEC, "spec.accelerator", name, problem)


def _batching(service: InferenceService, _: Accelerators) -> Iterator[Refusal]:
    context = service.spec.model.context_length
    for role in service.spec.roles:
        batching = service.spec.batching_of(role)
        tokens = batching.max_batch_tokens or 0
        if batching.strategy != "chunked" and tokens < context:
            problem = (
                f"strategy {batching.strategy} reads a prompt in one step, so it must be at least "
                f"spec.model.contextLength {context}; raise it, or use strategy chunked"
            )
            own = service.spec.roles[role].batching.max_batch_tokens is not None
            field = f"spec.{role}.batching.maxBatchTokens" if own else "spec.batching.maxBatchTokens"
            yield Refusal(Reason.INVALID_SPEC, field, str(tokens), problem)
    kv_tokens = service.spec.cache.kv_tokens
    if kv_tokens is not None and kv_tokens < context:
        problem = f"one request may need spec.model.contextLength {context} tokens; raise it to at least that"
        yield Refusal(Reason.INVALID_SPEC, "spec.cache.kvTokens", str(kv_tokens), problem)


def _spans(service: InferenceService, _: Accelerators) -> Iterator[Refusal]:
    """Refuse spans of time and sizes with which no request could be served; the gateway would not start with them."""
    routing, objectives = service.spec.routing, service.spec.objectives
    for field, span in (
        ("spec.routing.requestTimeout", routing.request_timeout),
        ("spec.objectives.timeToFirstToken", objectives.time_to_first_token),
        ("spec.objectives.timePerOutputToken", objectives.time_per_output_token),
        ("spec.objectives.window", objectives.window),
    ):
        if span is not None and not SHORTEST_SECONDS <= span.seconds <= LONGEST_SECONDS:
            yield Refusal(Reason.INVALID_SPEC, field, span, "it must be at least 1ms and at most 168h")
    if objectives.attainment < LEAST_ATTAINMENT:
        problem = (
            f"it is a percentage of at least {LEAST_ATTAINMENT}, and 100 times as much may be meant; write 95 for 95 %"
        )
        yield Refusal(Reason.INVALID_SPEC, "spec.objectives.attainment", f"{objectives.attainment:g}", problem)
    size = routing.limits.body_bytes
    if size.value < 1:
        problem = "no request would fit; raise it to more than the longest prompt in bytes"
        yield Refusal(Reason.INVALID_SPEC, "spec.routing.limits.bodyBytes", size, problem)


def _resources(service: InferenceService, accelerators: Accelerators) -> Iterator[Refusal]:
    for role, spec in service.spec.roles.items():
        field = f"spec.{role}.resources"
        accelerator = accelerators.get(service.spec.accelerator_of(role))
        counted = accelerator.spec.resource if accelerator else None
        for kind in ("requests", "limits"):
            for name, amount in getattr(spec.resources, kind).items():
                if counted == name or name.startswith("steelyard.dev/"):
                    problem = "accelerators are counted by the operator; leave it out and name spec.accelerator"
                    yield Refusal(Reason.ENGINE_SETTING_CONFLICT, f"{field}.{kind}.{name}", amount, problem)
        for name, request in spec.resources.requests.items():
            limit = spec.resources.limits.get(name)
            if limit is not None and request.value > limit.value:
                problem = f"it is above limits.{name} {limit}; lower it to at most that"
                yield Refusal(Reason.INVALID_SPEC, f"{field}.requests.{name}", request, problem)


def _memory(service: InferenceService, accelerators: Accelerators) -> Iterator[Refusal]:
    for role in service.spec.roles:
        for finding in pod_memory.found(service, role, accelerators.get(service.spec.accelerator_of(role))):
            yield Refusal(Reason.INVALID_SPEC, *finding)


def _bounds(service: InferenceService, _: Accelerators) -> Iterator[Refusal]:
    """Refuse bounds that contradict each other: a CEL rule does too, but not for what was stored before there was one.

    Followed, they would have a pool started with one number and brought to another at once.
    """
    for role, spec in service.spec.roles.items():
        bounds, field = spec.replicas, f"spec.{role}.replicas"
        if bounds.limit < bounds.min:
            problem = f"it is below replicas.min {bounds.min}; raise it, or lower min"
            yield Refusal(Reason.INVALID_SPEC, f"{field}.max", str(bounds.limit), problem)
        elif bounds.clamp(bounds.start) != bounds.start:
            problem = f"it must lie between min {bounds.min} and max {bounds.limit}"
            yield Refusal(Reason.INVALID_SPEC, f"{field}.initial", str(bounds.start), problem)


def _budget(service: InferenceService, _: Accelerators) -> Iterator[Refusal]:
    budget = service.spec.autoscaling.budget.accelerators
    if budget is None:
        return
    of = {role: service.spec.parallelism_of(role).accelerators for role in service.spec.roles}  # one replica's
    for word, numbers in (
        ("min", {role: of[role] * spec.replicas.min for role, spec in service.spec.roles.items()}),
        ("initial", {role: of[role] * spec.replicas.start for role, spec in service.spec.roles.items()}),
    ):
        if sum(numbers.values()) > budget:
            sums = " + ".join(f"{role} {number}" for role, number in numbers.items())
            problem = f"the roles' replicas.{word} need {sums} accelerators; raise the budget or lower replicas.{word}"
            yield Refusal(Reason.INVALID_SPEC, "spec.autoscaling.budget.accelerators", str(budget), problem)
            return


def _standby(service: InferenceService, _: Accelerators) -> Iterator[Refusal]:
    """Refuse standby replicas that could never stand by."""
    scaling = service.spec.autoscaling
    if not scaling.standby:
        return
    field, value = "spec.autoscaling.standby", str(scaling.standby)
    if scaling.mode == "Off":
        problem = "in mode Off nothing is decided, so nothing stands by; set mode Auto or Recommend, or leave it 0"
        yield Refusal(Reason.INVALID_SPEC, field, value, problem)
    for role, spec in service.spec.roles.items():
        room = spec.replicas.limit - spec.replicas.min
        if room < scaling.standby:
            problem = (
                f"spec.{role}.replicas leaves room for {room} beyond min {spec.replicas.min}; raise max to at least"
                f" {spec.replicas.min + scaling.standby}"
            )
            yield Refusal(Reason.INVALID_SPEC, field, value, problem)


def _schedule(service: InferenceService, _: Accelerators) -> Iterator[Refusal]:
    """Refuse peaks whose moments cannot be read, that are too long, or that ask for more than a role may have."""
    for index, entry in enumerate(service.spec.autoscaling.schedule):
        field = f"spec.autoscaling.schedule[{index}]"
        try:
            schedule.read(entry.cron)
        except schedule.NotCron as unreadable_cron:
            yield Refusal(Reason.INVALID_SPEC, f"{field}.cron", entry.cron, str(unreadable_cron))
        if not 0 < entry.duration.seconds <= schedule.LONGEST_SECONDS:
            problem = "it must be greater than zero and at most 168h; repeat the entry for longer peaks"
            yield Refusal(Reason.INVALID_SPEC, f"{field}.duration", entry.duration, problem)
        asked = {role: n for role in ("prefill", "decode", "aggregated") if (n := getattr(entry, role)) is not None}
        if not asked:
            problem = "it raises no minimum; name prefill, decode or aggregated"
            yield Refusal(Reason.INVALID_SPEC, field, "(no role)", problem)
        for role, number in asked.items():
            bounds = service.spec.roles[role].replicas if role in service.spec.roles else None
            if bounds is None:
                problem = f"topology {service.spec.topology} has no such role; leave it out"
                yield Refusal(Reason.INVALID_SPEC, f"{field}.{role}", str(number), problem)
            elif number > bounds.limit:
                problem = f"it is above spec.{role}.replicas.max {bounds.limit}; raise max, or lower it"
                yield Refusal(Reason.INVALID_SPEC, f"{field}.{role}", str(number), problem)


def _rollout(service: InferenceService, _: Accelerators) -> Iterator[Refusal]:
    objectives = service.spec.objectives
    judged = objectives.time_to_first_token is not None or objectives.time_per_output_token is not None
    if service.spec.rollout.pause_on_objective_loss and not judged:
        problem = (
            "no objective is set, so none can be lost; set spec.objectives.timeToFirstToken or timePerOutputToken, or"
            " leave it false"
        )
        yield Refusal(Reason.INVALID_SPEC, "spec.rollout.pauseOnObjectiveLoss", "true", problem)


def _spread(service: InferenceService, accelerators: Accelerators) -> Iterator[Refusal]:
    """A replica that spans nodes takes the same number of accelerators on each (ai-dynamo/dynamo#4934, kserve#4226)."""
    for role in service.spec.roles:
        accelerator = accelerators.get(service.spec.accelerator_of(role))
        if accelerator is None or not ENGINES[service.spec.engine.name].needs_hardware:
            continue
        wanted, per_node = service.spec.parallelism_of(role).accelerators, accelerator.spec.per_node
        field = f"spec.{role}.parallelism"
        if accelerator.spec.resource is None:
            if wanted > 1 and not ENGINES[service.spec.engine.name].processors_only:
                problem = "accelerators of this kind are not counted, so a replica has one; leave it 1"
                yield Refusal(Reason.INVALID_SPEC, field, str(wanted), problem)
        elif wanted > per_node and wanted % per_node:
            nearest = wanted // per_node * per_node
            problem = (
                f"a replica takes {wanted} accelerators and a node of {accelerator.name} has {per_node}, so they do not"
                f" share evenly; use {nearest} or {nearest + per_node}"
            )
            yield Refusal(Reason.INVALID_SPEC, field, str(wanted), problem)
        elif wanted > per_node and service.spec.engine.name == "tensorrt-llm":
            problem = (
                f"a replica of tensorrt-llm cannot span nodes here yet; use at most {per_node} accelerators, or vllm"
            )
            yield Refusal(Reason.SETTING_NOT_SUPPORTED, field, str(wanted), problem)


def _abilities(service: InferenceService, _: Accelerators) -> Iterator[Refusal]:
    for field, value, problem in abilities.found(service):
        yield Refusal(Reason.SETTING_NOT_SUPPORTED, field, _short(value), problem)


def _smuggling(service: InferenceService, _: Accelerators) -> Iterator[Refusal]:
    for field, value, problem in smuggling.found(service):
        yield Refusal(Reason.ENGINE_SETTING_CONFLICT, field, _short(value), problem)


CHECKS: tuple[Check, ...] = (
    _name,
    _model_source,
    _accelerators,
    _simulation,
    _batching,
    _spans,
    _resources,
    _memory,
    _bounds,
    _budget,
    _standby,
    _schedule,
    _rollout,
    _spread,
    _abilities,
    _smuggling,
)


def _input(detail: ErrorDetails) -> str:
    """Show what the type checker was given, but nothing that may hold the value of a variable or flag."""
    if detail["type"] == "missing":
        return "(absent)"
    if {"env", "args", "command"} & set(detail["loc"]) or isinstance(detail["input"], dict | list | tuple):
        return "(hidden)"
    return _short(detail["input"])


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 120 else text[:119] + "…"

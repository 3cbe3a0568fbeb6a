"""The rules that one field alone cannot state, written in CEL and checked by the API server at admission.

One table, `RULES`. A rule belongs to a type and holds wherever that type occurs. Each has an object that it accepts and
one that it refuses: the tests run both offline, and on a real API server. The rules keep to the part of CEL that every
supported API server has (no optional chaining, no `cel.bind`); `split`, `quantity` and `compareTo` come from Kubernetes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from steelyard.api.engine import Batching, EnvSource, EnvVar
from steelyard.api.goals import Objectives, RatioBounds
from steelyard.api.names import SUFFIXES
from steelyard.api.record import Record
from steelyard.api.roles import PodSpec, Replicas, Resources, TemplateContainer, TemplateMetadata, Volume
from steelyard.api.service import InferenceService, InferenceServiceSpec
from steelyard.api.traffic import Limits, Routing

Example = Mapping[str, Any]
FailureReason = Literal["FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired"]


@dataclass(frozen=True)
class Rule:
    """One CEL rule: `cel` must be true of every value of type `on` ("self"), else `message` goes to the user.

    `accept` and `reject` are laid over the smallest valid object by `sample`; `field` is the field of `self` that the
    error points at. Messages are constant: the API server counts a computed one as if numbers could be of any length, and refuses.
    """

    name: str
    on: type[Record]
    cel: str
    message: str
    accept: Example
    reject: Example
    field: str | None = None
    reason: FailureReason = "FieldValueInvalid"


def sample(example: Example) -> dict[str, Any]:
    """Lay an example over the smallest valid InferenceService."""
    smallest = {
        "apiVersion": "serving.steelyard.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": "sample", "namespace": "default"},
        "spec": {"model": {"uri": "oci://steelyard/model-smollm2:1"}},
    }
    return _over(smallest, example)


def _over(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in top.items():
        below = merged.get(key)
        merged[key] = _over(below, value) if isinstance(value, Mapping) and isinstance(below, Mapping) else value
    return merged


def _spec(**fields: Any) -> dict[str, Any]:
    return {"spec": fields}


def _decode(**fields: Any) -> dict[str, Any]:
    return _spec(decode=fields)


def _pod(**fields: Any) -> dict[str, Any]:
    return _decode(template={"spec": fields})


_NAMES = (
    Rule(
        name="name-is-a-dns-label",
        on=InferenceService,
        cel="self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$') && self.metadata.name.size() <= 63",
        message="the name becomes a Service: use at most 63 lower-case letters, digits and '-', beginning with a letter",
        accept={"metadata": {"name": "a" * 63}},
        reject={"metadata": {"name": "chat.v1"}},
    ),
    Rule(
        name="name-is-not-a-childs",
        on=InferenceService,
        cel=f"!self.metadata.name.matches('-({'|'.join(SUFFIXES)})$')",
        message=f"names that end in {', '.join('-' + s for s in SUFFIXES)} are kept for children of other services;"
        " choose another ending",
        accept={"metadata": {"name": "chat-decoder"}},
        reject={"metadata": {"name": "chat-decode"}},
    ),
)

_TOPOLOGY = tuple(
    Rule(
        name=f"{role}-only-when-{topology.lower()}",
        on=InferenceServiceSpec,
        cel=f"self.topology == '{topology}' || !has(self.{role})",
        message=f"{role} belongs to topology {topology}; {remedy}",
        accept=_spec(topology=topology, **{role: {}}),
        reject=_spec(topology=other, **{role: {}}),
        field=role,
        reason="FieldValueForbidden",
    )
    for role, topology, other, remedy in (
        ("prefill", "Disaggregated", "Aggregated", "write the block as aggregated, or change the topology"),
        ("decode", "Disaggregated", "Aggregated", "write the block as aggregated, or change the topology"),
        ("aggregated", "Aggregated", "Disaggregated", "write prefill and decode blocks, or change the topology"),
    )
)

_REPLICAS = (
    Rule(
        name="min-at-most-max",
        on=Replicas,
        cel="!has(self.max) || self.min <= self.max",
        message="replicas.min is greater than replicas.max; raise max or lower min",
        accept=_decode(replicas={"min": 2, "max": 2}),
        reject=_decode(replicas={"min": 3, "max": 2}),
        field="max",
    ),
    Rule(
        name="initial-within-bounds",
        on=Replicas,
        cel="!has(self.initial) || (self.initial >= self.min"
        " && (has(self.max) ? self.initial <= self.max : self.initial == self.min))",
        message="replicas.initial must lie between min and max (max defaults to min)",
        accept=_decode(replicas={"min": 1, "max": 4, "initial": 3}),
        reject=_decode(replicas={"min": 1, "initial": 3}),
        field="initial",
    ),
    Rule(
        name="minima-fit-the-budget",
        on=InferenceServiceSpec,
        cel="!has(self.autoscaling) || !has(self.autoscaling.budget) || !has(self.autoscaling.budget.accelerators)"
        " || (self.topology == 'Aggregated' ? (has(self.aggregated) ? self.aggregated.replicas.min : 1)"
        " : (has(self.prefill) ? self.prefill.replicas.min : 1) + (has(self.decode) ? self.decode.replicas.min : 1))"
        " <= self.autoscaling.budget.accelerators",
        message="the roles' replicas.min together pass autoscaling.budget.accelerators; raise the budget or lower a min",
        accept=_spec(autoscaling={"budget": {"accelerators": 2}}),
        reject=_spec(autoscaling={"budget": {"accelerators": 2}}, decode={"replicas": {"min": 2, "max": 2}}),
    ),
)


def _effective(role: str, field: str, default: str) -> str:
    """CEL for a batching field of a role: the role's, else the service's, else a default."""
    own, shared = f"self.{role}.batching", "self.batching"
    return (
        f"(has(self.{role}) && has({own}) && has({own}.{field}) ? {own}.{field}"
        f" : has({shared}) && has({shared}.{field}) ? {shared}.{field} : {default})"
    )


def _whole_prompts_fit(role: str, topology: str) -> Rule:
    strategy = _effective(role, "strategy", "'chunked'")
    tokens = _effective(role, "maxBatchTokens", "self.model.contextLength")
    few, context = {"maxBatchTokens": 512}, {"contextLength": 4096, "uri": "oci://steelyard/model-smollm2:1"}
    return Rule(
        name=f"whole-prompts-fit-{role}",
        on=InferenceServiceSpec,
        cel=f"self.topology != '{topology}' || {strategy} == 'chunked' || {tokens} >= self.model.contextLength",
        message=f"{role}: without chunks a whole prompt must fit into one step, so maxBatchTokens must be at least"
        " model.contextLength; raise it, lower the context, or use strategy chunked",
        accept=_spec(topology=topology, model=context, batching={**few, "strategy": "chunked"}),
        reject=_spec(
            topology=topology, model=context, batching=few, **{role: {"batching": {"strategy": "continuous"}}}
        ),
    )


_BATCHING = (
    Rule(
        name="max-wait-only-with-dynamic",
        on=Batching,
        cel="!has(self.maxWait) || (has(self.strategy) && self.strategy == 'dynamic')",
        message="maxWait has a meaning only with strategy dynamic, written in the same block; remove one or add the other",
        accept=_spec(batching={"strategy": "dynamic", "maxWait": "20ms"}),
        reject=_spec(batching={"strategy": "continuous", "maxWait": "20ms"}),
        field="maxWait",
        reason="FieldValueForbidden",
    ),
    _whole_prompts_fit("prefill", "Disaggregated"),
    _whole_prompts_fit("decode", "Disaggregated"),
    _whole_prompts_fit("aggregated", "Aggregated"),
)

_ENGINE = (
    Rule(
        name="one-value-a-variable",
        on=EnvVar,
        cel="!(has(self.value) && has(self.valueFrom))",
        message="a variable has value or valueFrom, not both",
        accept=_spec(engine={"env": [{"name": "A", "value": "1"}]}),
        reject=_spec(engine={"env": [{"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "a"}}}]}),
        field="valueFrom",
        reason="FieldValueForbidden",
    ),
    Rule(
        name="one-source-a-variable",
        on=EnvSource,
        cel="[has(self.secretKeyRef), has(self.configMapKeyRef), has(self.fieldRef)].filter(x, x).size() == 1",
        message="valueFrom takes exactly one of secretKeyRef, configMapKeyRef and fieldRef",
        accept=_spec(engine={"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]}),
        reject=_spec(engine={"env": [{"name": "A", "valueFrom": {}}]}),
    ),
)

_TEMPLATE = (
    Rule(
        name="requests-within-limits",
        on=Resources,
        cel="!has(self.requests) || !has(self.limits) || self.requests.all(k, !(k in self.limits)"
        " || quantity(string(self.requests[k])).compareTo(quantity(string(self.limits[k]))) <= 0)",
        message="a request is greater than its limit; raise the limit or lower the request",
        accept=_decode(resources={"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": 1}}),
        reject=_decode(resources={"requests": {"memory": "1Gi"}, "limits": {"memory": "1G"}}),
        field="requests",
    ),
    Rule(
        name="no-labels-of-ours",
        on=TemplateMetadata,
        cel="(!has(self.labels) || self.labels.all(k, !k.startsWith('serving.steelyard.dev/')"
        " && !k.startsWith('app.kubernetes.io/')))"
        " && (!has(self.annotations) || self.annotations.all(k, !k.startsWith('serving.steelyard.dev/')))",
        message="labels under serving.steelyard.dev/ and app.kubernetes.io/, and annotations under the former, are the"
        " operator's; use another prefix",
        accept=_decode(template={"metadata": {"labels": {"team": "a"}, "annotations": {"app.kubernetes.io/x": "y"}}}),
        reject=_decode(template={"metadata": {"labels": {"serving.steelyard.dev/role": "prefill"}}}),
        reason="FieldValueForbidden",
    ),
    Rule(
        name="engine-container-is-the-operators",
        on=TemplateContainer,
        cel="self.name != 'engine' || (!has(self.image) && (!has(self.command) || self.command.size() == 0)"
        " && (!has(self.args) || self.args.size() == 0) && !has(self.resources))",
        message="the container engine takes env and volumeMounts here; its image and args are spec.engine.image and"
        " spec.engine.args, its resources are the role's, its command is fixed",
        accept=_pod(containers=[{"name": "engine", "env": [{"name": "A", "value": "1"}]}]),
        reject=_pod(containers=[{"name": "engine", "command": ["/bin/sh", "-c"], "args": ["exec serve"]}]),
        reason="FieldValueForbidden",
    ),
    Rule(
        name="sidecar-has-an-image",
        on=TemplateContainer,
        cel="self.name == 'engine' || has(self.image)",
        message="a sidecar needs an image; to add to the engine's container name it engine",
        accept=_pod(containers=[{"name": "logger", "image": "logger:1"}]),
        reject=_pod(containers=[{"name": "logger"}]),
        reason="FieldValueRequired",
    ),
    Rule(
        name="container-names-not-ours",
        on=TemplateContainer,
        cel="!self.name.startsWith('steelyard-')",
        message="container names that begin with steelyard- are the operator's; choose another",
        accept=_pod(containers=[{"name": "my-logger", "image": "logger:1"}]),
        reject=_pod(containers=[{"name": "steelyard-weights", "image": "logger:1"}]),
        field="name",
        reason="FieldValueForbidden",
    ),
    Rule(
        name="engine-files-are-the-operators",
        on=TemplateContainer,
        cel="self.name != 'engine' || !has(self.volumeMounts)"
        " || self.volumeMounts.all(m, !m.mountPath.matches('^/+(models|etc(/+steelyard)?)?(/|$)'))",
        message="volumes of the engine cannot be mounted at or over /models and /etc/steelyard, which hold the weights"
        " and the settings; mount them elsewhere",
        accept=_pod(
            volumes=[{"name": "data", "emptyDir": {}}],
            containers=[{"name": "engine", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
        ),
        reject=_pod(
            volumes=[{"name": "data", "emptyDir": {}}],
            containers=[{"name": "engine", "volumeMounts": [{"name": "data", "mountPath": "/etc/steelyard"}]}],
        ),
        field="volumeMounts",
        reason="FieldValueForbidden",
    ),
    Rule(
        name="one-source-a-volume",
        on=Volume,
        cel="[has(self.configMap), has(self.secret), has(self.emptyDir), has(self.persistentVolumeClaim)]"
        ".filter(x, x).size() == 1",
        message="a volume has exactly one of configMap, secret, emptyDir and persistentVolumeClaim",
        accept=_pod(volumes=[{"name": "data", "emptyDir": {}}]),
        reject=_pod(volumes=[{"name": "data", "emptyDir": {}, "secret": {"secretName": "a"}}]),
    ),
    Rule(
        name="volume-names-not-ours",
        on=Volume,
        cel="!self.name.startsWith('steelyard-')",
        message="volume names that begin with steelyard- are the operator's; choose another",
        accept=_pod(volumes=[{"name": "my-data", "emptyDir": {}}]),
        reject=_pod(volumes=[{"name": "steelyard-weights", "emptyDir": {}}]),
        field="name",
        reason="FieldValueForbidden",
    ),
    Rule(
        name="mounts-have-volumes",
        on=PodSpec,
        cel="!has(self.containers) || self.containers.all(c, !has(c.volumeMounts) || c.volumeMounts.all(m,"
        " has(self.volumes) && self.volumes.exists(v, v.name == m.name)))",
        message="a volumeMount names a volume that the template does not have; add it to template.spec.volumes",
        accept=_pod(
            volumes=[{"name": "data", "emptyDir": {}}],
            containers=[{"name": "engine", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
        ),
        reject=_pod(containers=[{"name": "engine", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}]),
        field="containers",
    ),
)

_TRAFFIC = (
    Rule(
        name="request-timeout-positive",
        on=Routing,
        cel="string(self.requestTimeout).matches('[1-9]')",
        message="requestTimeout must be greater than zero",
        accept=_spec(routing={"requestTimeout": 30}),
        reject=_spec(routing={"requestTimeout": "0s"}),
        field="requestTimeout",
    ),
    Rule(
        name="body-limit-positive",
        on=Limits,
        cel="string(self.bodyBytes).matches('^[0-9.]*[1-9]')",
        message="limits.bodyBytes must be greater than zero",
        accept=_spec(routing={"limits": {"bodyBytes": "64Ki"}}),
        reject=_spec(routing={"limits": {"bodyBytes": "0Mi"}}),
        field="bodyBytes",
    ),
)

_LATENCIES = ("timeToFirstToken", "timePerOutputToken")

_GOALS = (
    *(
        Rule(
            name=f"{field}-is-a-latency",
            on=Objectives,
            cel=f"!has(self.{field}) || (string(self.{field}).matches('[1-9]')"
            f" && !string(self.{field}).matches('[0-9](m([0-9]|$)|h)'))",
            message=f"{field} must be greater than zero and written in seconds or smaller units, such as 500ms or 1.5s"
            " (m means minutes)",
            accept=_spec(objectives={field: "500ms"}),
            reject=_spec(objectives={field: "500m"}),
            field=field,
        )
        for field in _LATENCIES
    ),
    Rule(
        name="window-positive",
        on=Objectives,
        cel="string(self.window).matches('[1-9]')",
        message="objectives.window must be greater than zero",
        accept=_spec(objectives={"window": 60}),
        reject=_spec(objectives={"window": 0}),
        field="window",
    ),
    Rule(
        name="ratio-ordered",
        on=RatioBounds,
        cel="!has(self.min) || !has(self.max) || int(self.min.split(':')[0]) * int(self.max.split(':')[1])"
        " <= int(self.max.split(':')[0]) * int(self.min.split(':')[1])",
        message="ratio.min is greater than ratio.max; both are prefill:decode, so 1:8 is less than 4:1",
        accept=_spec(autoscaling={"ratio": {"min": "1:8", "max": "4:1"}}),
        reject=_spec(autoscaling={"ratio": {"min": "4:1", "max": "1:8"}}),
        field="max",
    ),
)

RULES: tuple[Rule, ...] = (*_NAMES, *_TOPOLOGY, *_REPLICAS, *_BATCHING, *_ENGINE, *_TEMPLATE, *_TRAFFIC, *_GOALS)

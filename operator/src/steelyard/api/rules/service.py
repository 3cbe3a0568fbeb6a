"""Rules on the service as a whole: its name, its topology, its numbers of replicas and its batching."""

from steelyard.api.engine import Batching
from steelyard.api.names import SUFFIXES
from steelyard.api.roles import Replicas
from steelyard.api.rules.rule import Rule, decode, spec
from steelyard.api.service import InferenceService, InferenceServiceSpec

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
        accept=spec(topology=topology, **{role: {}}),
        reject=spec(topology=other, **{role: {}}),
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
        accept=decode(replicas={"min": 2, "max": 2}),
        reject=decode(replicas={"min": 3, "max": 2}),
        field="max",
    ),
    Rule(
        name="initial-within-bounds",
        on=Replicas,
        cel="!has(self.initial) || (self.initial >= self.min"
        " && (has(self.max) ? self.initial <= self.max : self.initial == self.min))",
        message="replicas.initial must lie between min and max (max defaults to min)",
        accept=decode(replicas={"min": 1, "max": 4, "initial": 3}),
        reject=decode(replicas={"min": 1, "initial": 3}),
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
        accept=spec(autoscaling={"budget": {"accelerators": 2}}),
        reject=spec(autoscaling={"budget": {"accelerators": 2}}, decode={"replicas": {"min": 2, "max": 2}}),
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
        accept=spec(topology=topology, model=context, batching={**few, "strategy": "chunked"}),
        reject=spec(topology=topology, model=context, batching=few, **{role: {"batching": {"strategy": "continuous"}}}),
    )


_BATCHING = (
    Rule(
        name="max-wait-only-with-dynamic",
        on=Batching,
        cel="!has(self.maxWait) || (has(self.strategy) && self.strategy == 'dynamic')",
        message="maxWait has a meaning only with strategy dynamic, written in the same block; remove one or add the other",
        accept=spec(batching={"strategy": "dynamic", "maxWait": "20ms"}),
        reject=spec(batching={"strategy": "continuous", "maxWait": "20ms"}),
        field="maxWait",
        reason="FieldValueForbidden",
    ),
    _whole_prompts_fit("prefill", "Disaggregated"),
    _whole_prompts_fit("decode", "Disaggregated"),
    _whole_prompts_fit("aggregated", "Aggregated"),
)

SERVICE_RULES = (*_NAMES, *_TOPOLOGY, *_REPLICAS, *_BATCHING)

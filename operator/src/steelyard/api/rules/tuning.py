"""Rules on cache, speculation, number formats, hand-off and rollouts: fields that have a meaning only beside another one."""

from steelyard.api.cache import Eviction, Offload
from steelyard.api.number_formats import Quantization
from steelyard.api.rollout import Rollout
from steelyard.api.rules.rule import Rule, spec
from steelyard.api.speculation import Speculation
from steelyard.api.traffic import Transfer


def _eviction(**fields: object) -> dict[str, object]:
    return spec(cache={"eviction": fields})


def _offload(**fields: object) -> dict[str, object]:
    return spec(cache={"offload": fields})


_CACHE = (
    Rule(
        name="window-exactly-with-streaming",
        on=Eviction,
        cel="has(self.windowTokens) == (self.policy == 'streaming')",
        message="eviction.windowTokens belongs to policy streaming, which needs it; add the one or remove the other",
        accept=_eviction(policy="streaming", sinkTokens=4, windowTokens=1020),
        reject=_eviction(policy="streaming"),
        field="windowTokens",
    ),
    Rule(
        name="sinks-only-with-streaming",
        on=Eviction,
        cel="!has(self.sinkTokens) || self.policy == 'streaming'",
        message="eviction.sinkTokens has a meaning only with policy streaming; remove it, or use that policy",
        accept=_eviction(policy="streaming", sinkTokens=4, windowTokens=1020),
        reject=_eviction(policy="h2o", budgetTokens=1024, sinkTokens=4),
        field="sinkTokens",
        reason="FieldValueForbidden",
    ),
    Rule(
        name="budget-exactly-with-scored-eviction",
        on=Eviction,
        cel="has(self.budgetTokens) == (self.policy == 'h2o' || self.policy == 'snapkv')",
        message="eviction.budgetTokens belongs to policies h2o and snapkv, which need it; add the one or remove the other",
        accept=_eviction(policy="snapkv", budgetTokens=1024),
        reject=_eviction(policy="none", budgetTokens=1024),
        field="budgetTokens",
    ),
    Rule(
        name="offload-memory-only-with-a-kind",
        on=Offload,
        cel="!has(self.memory) || (self.kind in ['cpu', 'lmcache', 'mooncake']"
        " && string(self.memory).matches('^[0-9.]*[1-9]'))",
        message="offload.memory belongs to kinds cpu, lmcache and mooncake, and must be greater than zero; use one, or remove it",
        accept=_offload(kind="cpu", memory="32Gi"),
        reject=_offload(kind="none", memory="32Gi"),
        field="memory",
        reason="FieldValueForbidden",
    ),
    Rule(
        name="offload-address-only-with-a-store",
        on=Offload,
        cel="!has(self.address) || self.kind in ['lmcache', 'mooncake']",
        message="offload.address names a shared store, which kinds lmcache and mooncake have; remove it, or use one",
        accept=_offload(kind="lmcache", address="lmcache.stores:65432"),
        reject=_offload(kind="cpu", address="lmcache.stores:65432"),
        field="address",
        reason="FieldValueForbidden",
    ),
    Rule(
        name="mooncake-has-an-address",
        on=Offload,
        cel="self.kind != 'mooncake' || has(self.address)",
        message="offload.kind mooncake needs offload.address, HOST:PORT of the mooncake master; add it",
        accept=_offload(kind="mooncake", address="mooncake-master.stores:50051"),
        reject=_offload(kind="mooncake"),
        reason="FieldValueRequired",
    ),
)

_SPECULATION = (
    Rule(
        name="guessing-model-exactly-with-draft-and-eagle3",
        on=Speculation,
        cel="has(self.model) == (self.method == 'draft' || self.method == 'eagle3')",
        message="speculation.model belongs to methods draft and eagle3, which need it; add the one or remove the other",
        accept=spec(speculation={"method": "draft", "model": "Qwen/Qwen3-0.6B"}),
        reject=spec(speculation={"method": "eagle3"}),
        field="model",
    ),
    Rule(
        name="guessed-tokens-only-with-a-method",
        on=Speculation,
        cel="!has(self.tokens) || self.method != 'none'",
        message="speculation.tokens has a meaning only with a method other than none; remove it, or choose a method",
        accept=spec(speculation={"method": "mtp", "tokens": 1}),
        reject=spec(speculation={"tokens": 4}),
        field="tokens",
        reason="FieldValueForbidden",
    ),
    Rule(
        name="prompt-lookup-only-with-ngram",
        on=Speculation,
        cel="!has(self.promptLookup) || self.method == 'ngram'",
        message="speculation.promptLookup has a meaning only with method ngram; remove it, or use that method",
        accept=spec(speculation={"method": "ngram", "promptLookup": 4}),
        reject=spec(speculation={"method": "mtp", "promptLookup": 4}),
        field="promptLookup",
        reason="FieldValueForbidden",
    ),
)

_MOVES = (
    Rule(
        name="rdma-resource-only-with-rdma",
        on=Transfer,
        cel="!has(self.rdmaResource) || self.network == 'rdma'",
        message="transfer.rdmaResource has a meaning only with network rdma; remove it, or use that network",
        accept=spec(transfer={"network": "rdma", "rdmaResource": "rdma/hca_shared"}),
        reject=spec(transfer={"rdmaResource": "rdma/hca_shared"}),
        field="rdmaResource",
        reason="FieldValueForbidden",
    ),
    Rule(
        name="rollout-can-move",
        on=Rollout,
        cel="string(self.maxUnavailable).matches('[1-9]') || string(self.maxSurge).matches('[1-9]')",
        message="rollout.maxUnavailable and rollout.maxSurge are both zero, so no pod could ever be replaced; raise one",
        accept=spec(rollout={"maxUnavailable": 0, "maxSurge": 1}),
        reject=spec(rollout={"maxUnavailable": 0, "maxSurge": "0%"}),
    ),
)

_NUMBERS = (
    Rule(
        name="job-only-with-source-job",
        on=Quantization,
        cel="!has(self.job) || (has(self.source) && self.source == 'Job')",
        message="quantization.job says how source Job is done; set that source beside it, or remove it",
        accept=spec(quantization={"source": "Job", "weights": "fp8", "job": {"claim": "quantized"}}),
        reject=spec(quantization={"weights": "fp8", "job": {"claim": "quantized"}}),
        field="job",
        reason="FieldValueForbidden",
    ),
)

TUNING_RULES = (*_CACHE, *_SPECULATION, *_MOVES, *_NUMBERS)

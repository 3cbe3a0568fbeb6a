"""The types and the schema made from them accept and refuse the same objects, so a file that a command reads is one that
the API server takes."""

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft4Validator
from offline_admission import admit, closed_schema
from pydantic import ValidationError
from steelyard.api.rules import RULES, sample
from steelyard.api.service import InferenceService
from steelyard.cli.admission import broken_rules

# What a pattern says elsewhere, and the types check too; other rules on several fields are the API server's and the operator's.
FORMS = tuple(rule.message for rule in RULES if rule.name.endswith("-form"))
SCHEMA = Draft4Validator(closed_schema("InferenceService"))

admit(sample({"spec": {"prefill": {}, "decode": {}}}))  # compiles the rules once, which is slow, outside of any example

SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from([0, 1, 2, 16, 999, 1001, 10**9, -1, 0.5, 99.5, 100, True, False, None, [], {}]),
    st.sampled_from(
        ["", "8", "1", "true", "500ms", "1.5s", "5 m", "4Mi", "500m", "1:8", "4:1", "0:1", "cpu", "H200", "a" * 300]
    ),
    st.sampled_from(
        [
            "Auto",
            "auto",
            "chunked",
            "dynamic",
            "Aggregated",
            "http",
            "prefix",
            "llama-cpp",
            "vllm",
            "ollama",
            "25%",
            "100%",
            "fp8",
        ]
    ),
)

LEAVES = (
    ("model", "uri"), ("model", "servedName"), ("model", "contextLength"), ("model", "shape", "layers"), ("engine", "name"),
    ("engine", "image"), ("engine", "args"), ("topology",), ("accelerator",), ("batching", "strategy"),
    ("batching", "maxSequences"), ("batching", "maxWait"), ("cache", "kvTokens"), ("prefill", "replicas", "min"),
    ("decode", "replicas", "max"), ("decode", "resources", "requests", "cpu"), ("decode", "template", "spec", "volumes"),
    ("decode", "template", "metadata", "labels", "team"), ("transfer", "connector"), ("routing", "limits", "bodyBytes"),
    ("routing", "limits", "shedWhenLate"), ("routing", "limits", "concurrent"), ("routing", "requestTimeout"),
    ("routing", "replicas"), ("objectives", "timeToFirstToken"), ("objectives", "attainment"), ("autoscaling", "mode"),
    ("autoscaling", "budget", "costPerHour"), ("autoscaling", "ratio", "min"), ("decode", "unheard"), ("unheard",),
    ("model", "trustRemoteCode"), ("model", "adapters"), ("model", "credentials", "secretName"), ("model", "shape", "kvRank"),
    ("engine", "version"), ("engine", "modelRunner"), ("engine", "memoryUtilization"), ("quantization", "weights"),
    ("decode", "quantization", "kvCache"), ("quantization", "losslessCompression"), ("parallelism", "tensor"),
    ("prefill", "parallelism", "expert"), ("decode", "sharedMemory"), ("cache", "blockTokens"), ("cache", "prefixReuse"),
    ("cache", "eviction", "windowTokens"), ("cache", "offload", "memory"), ("cache", "offload", "address"),
    ("speculation", "method"), ("speculation", "tokens"), ("speculation", "model"), ("transfer", "network"),
    ("transfer", "rdmaResource"), ("rollout", "maxSurge"), ("rollout", "pauseOnObjectiveLoss"), ("autoscaling", "standby"),
    ("autoscaling", "schedule"),
)  # fmt: skip


def spec_with(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    for name in reversed(path):
        value = {name: value}
    return dict(value)


def types_accept(body: dict[str, Any]) -> bool:
    try:
        InferenceService.read(body)
    except ValidationError:
        return False
    return True


def schema_accepts(body: dict[str, Any]) -> bool:
    return SCHEMA.is_valid(body) and not any(error.endswith(FORMS) for error in broken_rules(body))


@settings(deadline=None)
@given(st.sampled_from(LEAVES), SCALARS)
@example(("routing", "replicas"), "8")
@example(("routing", "limits", "shedWhenLate"), "true")
@example(("objectives", "timeToFirstToken"), 8)
@example(("model", "uri"), "a" * 300)
@example(("model", "uri"), "hf://org/model@main")
@example(("model", "servedName"), "5 m")
@example(("engine", "version"), "0.32.0")
@example(("engine", "version"), "v0.32")
@example(("model", "adapters"), [{"name": "a", "uri": "s3://bucket/a"}])
def test_one_field_at_a_time(path: tuple[str, ...], value: Any) -> None:
    if value is None:
        return  # the API server drops a null before it validates; the types read it as not set
    body = sample({"spec": spec_with(path, value)})
    assert types_accept(body) == schema_accepts(body), [error.message for error in SCHEMA.iter_errors(body)]


@settings(deadline=None)
@given(
    st.dictionaries(st.sampled_from(["min", "max", "initial"]), st.integers(-1, 1002)),
    st.sampled_from(["prefill", "decode"]),
)
def test_admitted_replicas_can_be_clamped(replicas: dict[str, int], role: str) -> None:
    """Whatever admission lets through has min ≤ start ≤ limit (invariant 2)."""
    body = sample({"spec": {role: {"replicas": replicas}}})
    if admit(body):
        return
    bounds = InferenceService.read(body).spec.roles[role].replicas
    assert 1 <= bounds.min <= bounds.start <= bounds.limit <= 1000
    assert bounds.min <= bounds.clamp(10**9) == bounds.limit
    assert bounds.clamp(0) == bounds.min

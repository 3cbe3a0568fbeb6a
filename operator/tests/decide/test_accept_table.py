"""What the operator refuses, as a table: the spec, the field named, and words of value and remedy.

Case ids are of the public failure reports this project collects as tests; sources are in the test's table.
"""

from __future__ import annotations

from typing import Any

import pytest
from operator_bodies import KNOWN, SHAPE, merged, service, service_body, simulated
from pydantic import ValidationError
from steelyard.api.accelerator import Accelerator
from steelyard.api.reasons import Reason
from steelyard.api.service import InferenceService
from steelyard.catalog.engines import EMBEDDED_FLAGS
from steelyard.decide.accept import MESSAGE_LIMIT, message, refusals
from steelyard.decide.plan import read


def container(**fields: Any) -> dict[str, Any]:
    return {"template": {"spec": {"containers": [{"name": "engine", **fields}]}}}


VLLM: dict[str, Any] = {
    "model": {"uri": "hf://org/model", "servedName": None},
    "accelerator": "h200",
    "engine": {"name": "vllm"},
}
REFUSED: list[tuple[str, dict[str, Any], Reason, str, list[str]]] = [
    ("unknown hardware", {"accelerator": "h2000"}, Reason.UNKNOWN_ACCELERATOR, "spec.accelerator",
     ["h2000", "kubectl get accelerators"]),
    ("unknown hardware of a role", {"decode": {"accelerator": "h2000"}}, Reason.UNKNOWN_ACCELERATOR,
     "spec.decode.accelerator", ["h2000"]),
    ("the embedded engine on a GPU", {"accelerator": "h200"}, Reason.INVALID_SPEC, "spec.accelerator",
     ["h200", "cpu", "simulated"]),
    ("weights from a hub", {"model": {"uri": "hf://org/model"}}, Reason.MODEL_SOURCE_NOT_SUPPORTED, "spec.model.uri",
     ["hf://org/model", "oci://", "pvc://"]),
    ("simulated without a shape", {**simulated(), "model": {"uri": "hf://org/m"}}, Reason.INVALID_SPEC,
     "spec.model.shape", ["parameters", "layers", "hiddenSize"]),
    ("simulated with half a shape", {**simulated(), "model": {"uri": "hf://org/m", "shape": {"parameters": 7}}},
     Reason.INVALID_SPEC, "spec.model.shape", ["layers"]),
    # verl-project/verl and vllm-project/vllm#33109 (C24): whole prompts need a budget of the model's length.
    ("C24", {"model": {"contextLength": 131072}, "prefill": {"batching": {"strategy": "continuous", "maxBatchTokens": 8192}}},
     Reason.INVALID_SPEC, "spec.prefill.batching.maxBatchTokens", ["8192", "131072", "chunked"]),
    ("a cache below one request", {"cache": {"kvTokens": 1024}}, Reason.INVALID_SPEC, "spec.cache.kvTokens",
     ["1024", "2048"]),
    ("requests above limits", {"decode": {"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}},
     Reason.INVALID_SPEC, "spec.decode.resources.requests.cpu", ["2", "limits.cpu 1"]),
    ("a limit that /dev/shm fills", {**VLLM, "decode": {"resources": {"limits": {"memory": "1Gi"}}}}, Reason.INVALID_SPEC,
     "spec.decode.resources.limits.memory", ["1Gi", "/dev/shm of 2Gi", "at least 3Gi"]),
    ("a limit below the /dev/shm that the user wants",
     {**VLLM, "decode": {"sharedMemory": "8Gi", "resources": {"limits": {"memory": "8Gi"}}}}, Reason.INVALID_SPEC,
     "spec.decode.resources.limits.memory", ["8Gi", "at least 9Gi", "lower spec.decode.sharedMemory"]),
    ("a limit that is raised by what is offloaded, and no further",
     {**VLLM, "cache": {"offload": {"kind": "cpu", "memory": "100Gi"}}, "decode": {"resources": {"limits": {"memory": "2Gi"}}}},
     Reason.INVALID_SPEC, "spec.decode.resources.limits.memory", ["2Gi", "at least 3Gi"]),
    ("a /dev/shm that what is offloaded does not fit",
     {**VLLM, "cache": {"offload": {"kind": "cpu", "memory": "100Gi"}}, "decode": {"sharedMemory": "8Gi"}},
     Reason.INVALID_SPEC, "spec.decode.sharedMemory", ["8Gi", "100Gi", "at least 102Gi"]),
    ("less than a gigabyte for each accelerator, which sglang cannot count",
     {**VLLM, "engine": {"name": "sglang"}, "topology": "Aggregated", "parallelism": {"tensor": 4},
      "cache": {"offload": {"kind": "cpu", "memory": "3Gi"}}},
     Reason.INVALID_SPEC, "spec.cache.offload.memory", ["3Gi", "at least 4Gi"]),
    # vllm-project/production-stack (C30): the count of accelerators is derived, never written by hand.
    ("C30", simulated({"prefill": {"resources": {"limits": {"nvidia.com/gpu": 2}}}}), Reason.ENGINE_SETTING_CONFLICT,
     "spec.prefill.resources.limits.nvidia.com/gpu", ["2", "spec.accelerator"]),
    ("our own resource by hand", {"prefill": {"resources": {"limits": {"steelyard.dev/simulated-accelerator": 2}}}},
     Reason.ENGINE_SETTING_CONFLICT, "spec.prefill.resources.limits.steelyard.dev/simulated-accelerator", ["2"]),
    ("bounds that cross, stored before a rule refused them", {"decode": {"replicas": {"min": 5, "max": 2}}},
     Reason.INVALID_SPEC, "spec.decode.replicas.max", ["2", "min 5"]),
    ("initial outside the bounds", {"decode": {"replicas": {"min": 2, "max": 4, "initial": 5}}}, Reason.INVALID_SPEC,
     "spec.decode.replicas.initial", ["5", "min 2", "max 4"]),
    ("minima above the budget", {"autoscaling": {"budget": {"accelerators": 2}}, "decode": {"replicas": {"min": 2, "max": 3}}},
     Reason.INVALID_SPEC, "spec.autoscaling.budget.accelerators", ["2", "prefill 1 + decode 2"]),
    ("initial above the budget",
     {"autoscaling": {"budget": {"accelerators": 2}}, "decode": {"replicas": {"min": 1, "max": 3, "initial": 3}}},
     Reason.INVALID_SPEC, "spec.autoscaling.budget.accelerators", ["prefill 1 + decode 3"]),
    # kaito-project/kaito#1653 (C32): a limit given as an engine flag was not seen by the check of the typed one.
    ("C32", {"engine": {"args": ["--context-length", "4096"]}}, Reason.ENGINE_SETTING_CONFLICT, "spec.engine.args[0]",
     ["--context-length", "spec.model.contextLength"]),
    ("C32, form with =", {"engine": {"args": ["--context-length=4096"]}}, Reason.ENGINE_SETTING_CONFLICT,
     "spec.engine.args[0]", ["spec.model.contextLength"]),
    ("C32, underscores", {"engine": {"image": "mine:1", "args": ["--ok", "--max_sequences=4"]}}, Reason.ENGINE_SETTING_CONFLICT,
     "spec.engine.args[1]", ["spec.batching.maxSequences"]),
    ("C32, abbreviated", {"engine": {"args": ["--context=4096"]}}, Reason.ENGINE_SETTING_CONFLICT,
     "spec.engine.args[0]", ["--context-length"]),
    ("a flag that a variable spells",
     {"engine": {"image": "mine:1", "args": ["$(A)"], "env": [{"name": "A", "value": "--port=1"}]}},
     Reason.ENGINE_SETTING_CONFLICT, "spec.engine.args[0]", ["$(A)", "write the flag out"]),
    ("a flag that a variable ends", {"engine": {"image": "mine:1", "args": ["--$(A)-sequences=4"]}},
     Reason.ENGINE_SETTING_CONFLICT, "spec.engine.args[0]", ["write the flag out"]),
    ("the user's flag of the embedded engine is none of the simulated one's",
     simulated({"engine": {"name": "simulated", "args": ["--numerics=fast"]}}), Reason.ENGINE_SETTING_CONFLICT,
     "spec.engine.args[0]", ["no such flag"]),
    ("a value without a flag", {"engine": {"args": ["chunked"]}}, Reason.ENGINE_SETTING_CONFLICT, "spec.engine.args[0]",
     ["(hidden)", "no such flag"]),
    ("no time for a request", {"routing": {"requestTimeout": "0s"}}, Reason.INVALID_SPEC, "spec.routing.requestTimeout",
     ["0s", "1ms"]),
    ("a request for years", {"routing": {"requestTimeout": "9999999h"}}, Reason.INVALID_SPEC,
     "spec.routing.requestTimeout", ["9999999h", "168h"]),
    ("no time for a first token", {"objectives": {"timeToFirstToken": "0"}}, Reason.INVALID_SPEC,
     "spec.objectives.timeToFirstToken", ["1ms"]),
    ("no time for a token", {"objectives": {"timePerOutputToken": "9ns"}}, Reason.INVALID_SPEC,
     "spec.objectives.timePerOutputToken", ["9ns"]),
    ("a share where a percentage is meant, stored before a rule refused it", {"objectives": {"attainment": 0.95}},
     Reason.INVALID_SPEC, "spec.objectives.attainment", ["0.95", "write 95 for 95 %"]),
    ("no window", {"objectives": {"window": "0m"}}, Reason.INVALID_SPEC, "spec.objectives.window", ["0m"]),
    ("no body", {"routing": {"limits": {"bodyBytes": 0}}}, Reason.INVALID_SPEC, "spec.routing.limits.bodyBytes", ["0"]),
    # A real sample that turns on remote code and request logging (kserve/kserve, G08).
    ("G08", {"engine": {"args": ["--enable_log_requests"]}}, Reason.ENGINE_SETTING_CONFLICT, "spec.engine.args[0]",
     ["--enable_log_requests", "no such flag"]),
    ("a port by hand", {"engine": {"args": ["--kv-port=1"]}}, Reason.ENGINE_SETTING_CONFLICT, "spec.engine.args[0]",
     ["the operator sets it"]),
    # volcano-sh/kthena#1781 (C22): an any-address that is both bound and advertised.
    ("C22", {"engine": {"env": [{"name": "POD_IP", "value": "0.0.0.0"}]}}, Reason.ENGINE_SETTING_CONFLICT,
     "spec.engine.env.POD_IP", ["peers connect to it", "leave it out"]),
    ("C22 by template", {"prefill": container(env=[{"name": "POD_IP", "value": "0.0.0.0"}])},
     Reason.ENGINE_SETTING_CONFLICT, "spec.prefill.template.spec.containers[engine].env.POD_IP", ["peers connect to it"]),
    # vllm-project/vllm#39279 (C35): a start command that is replaced.
    ("C35", {"decode": container(command=["/bin/sh", "-c"])},
     Reason.ENGINE_SETTING_CONFLICT, "spec.decode.template.spec.containers[engine].command", ["/bin/sh", "spec.engine.name"]),
    ("an engine image by template", {"decode": container(image="mine")}, Reason.ENGINE_SETTING_CONFLICT,
     "spec.decode.template.spec.containers[engine].image", ["spec.engine.image"]),
    ("resources by template", {"decode": container(resources={"limits": {"cpu": "4"}})}, Reason.ENGINE_SETTING_CONFLICT,
     "spec.decode.template.spec.containers[engine].resources", ["spec.decode.resources"]),
    ("a mount over our files", {"decode": container(volumeMounts=[{"name": "x", "mountPath": "/etc/steelyard/"}])},
     Reason.ENGINE_SETTING_CONFLICT, "spec.decode.template.spec.containers[engine].volumeMounts", ["/etc/steelyard/"]),
    ("a mount inside our files", {"decode": container(volumeMounts=[{"name": "x", "mountPath": "/models/other"}])},
     Reason.ENGINE_SETTING_CONFLICT, "spec.decode.template.spec.containers[engine].volumeMounts", ["/models/other"]),
    *((f"a mount at {path}", {"decode": container(volumeMounts=[{"name": "x", "mountPath": path}])},
       Reason.ENGINE_SETTING_CONFLICT, "spec.decode.template.spec.containers[engine].volumeMounts", [path])
      for path in ("//models", "/./models", "/x/../models", "/etc", "/etc//steelyard/", "/etc/./steelyard/x", "/.", "/a/..")),
    ("a volume of our name", {"decode": {"template": {"spec": {"volumes": [{"name": "models", "emptyDir": {}}]}}}},
     Reason.ENGINE_SETTING_CONFLICT, "spec.decode.template.spec.volumes", ["models"]),
    ("our label", {"decode": {"template": {"metadata": {"labels": {"serving.steelyard.dev/role": "prefill"}}}}},
     Reason.ENGINE_SETTING_CONFLICT, "spec.decode.template.metadata.labels.serving.steelyard.dev/role", ["prefill"]),
    ("a sidecar without an image", {"decode": {"template": {"spec": {"containers": [{"name": "logs"}]}}}},
     Reason.ENGINE_SETTING_CONFLICT, "spec.decode.template.spec.containers[logs].image", ["absent"]),
    ("a sidecar of our name", {"decode": {"template": {"spec": {"containers": [{"name": "weights", "image": "x"}]}}}},
     Reason.ENGINE_SETTING_CONFLICT, "spec.decode.template.spec.containers[weights]", ["weights"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "reason", "field", "words"), [case[1:] for case in REFUSED], ids=[c[0] for c in REFUSED]
)
def test_refused(spec: dict[str, Any], reason: Reason, field: str, words: list[str]) -> None:
    found = refusals(service(spec), KNOWN)
    assert [(refusal.reason, refusal.field) for refusal in found] == [(reason, field)]
    for word in words:
        assert word in message(found)


ACCEPTED: list[tuple[str, dict[str, Any]]] = [
    ("a limit that just holds /dev/shm and an engine", {**VLLM, "decode": {"resources": {"limits": {"memory": "3Gi"}}}}),
    ("a small limit of an engine without a /dev/shm", {"decode": {"resources": {"limits": {"memory": "256Mi"}}}}),
    ("a limit beside what two nodes offload, whose region in /dev/shm counts both",
     {**VLLM, "cache": {"offload": {"kind": "cpu", "memory": "100Gi"}}, "parallelism": {"tensor": 8, "pipeline": 2},
      "decode": {"resources": {"limits": {"memory": "10Gi"}}}}),
    ("the smallest", {}),
    ("weights on a claim", {"model": {"uri": "pvc://models/smollm2.gguf"}}),
    ("simulated", simulated()),
    ("simulated from a hub, since it reads no weights", simulated({"model": {"uri": "hf://org/model@main"}})),
    ("simulated on announced hardware", simulated({"accelerator": "b200"})),
    ("C24 with chunks", {"model": {"contextLength": 131072}, "batching": {"strategy": "chunked", "maxBatchTokens": 8192}}),
    ("C24 by default", {"model": {"contextLength": 131072}, "batching": {"strategy": "continuous"}}),
    ("a budget that just fits", {"autoscaling": {"budget": {"accelerators": 2}}}),
    ("roles on different hardware", simulated({"decode": {"accelerator": "h100"}})),
    ("another image may have other flags", {"engine": {"image": "mine:1", "args": ["--verbose", "4096", "-x"]}}),
    ("the user's flag of the embedded engine", {"engine": {"args": ["--numerics", "fast"]}}),
    ("variables in values", {"engine": {"image": "mine:1", "args": ["--verbose=$(A)", "$$(A)", "x$(A)"]}}),
    ("spans at their bounds", {"routing": {"requestTimeout": "168h"}, "objectives": {"timePerOutputToken": "1ms"}}),
    ("a sidecar", {"decode": {"template": {"spec": {"containers": [{"name": "logs", "image": "x"}]}}}}),
    ("a variable of the user's", {"decode": container(env=[{"name": "A", "value": "1"}])}),
    ("a mount of the user's", {"decode": container(volumeMounts=[{"name": "v", "mountPath": "/v"}])}),
]  # fmt: skip


@pytest.mark.parametrize("spec", [case[1] for case in ACCEPTED], ids=[case[0] for case in ACCEPTED])
def test_accepted(spec: dict[str, Any]) -> None:
    assert refusals(service(spec), KNOWN) == ()


@pytest.mark.parametrize("flag", sorted(EMBEDDED_FLAGS))
@pytest.mark.parametrize("form", ["{0}", "{0}=1", "{1}=1"])
def test_no_flag_of_ours_passes_in_any_form(flag: str, form: str) -> None:
    argument = form.format(flag, "--" + flag[2:].replace("-", "_"))
    assert refusals(service({"engine": {"args": [argument]}}), KNOWN)


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("chat.v2", "chat.v2"),
        ("9lives", "9lives"),
        ("a" * 64, "63"),
        ("chat-decode", "-decode"),
        ("x-gateway", "-gateway"),
    ],
)
def test_names_that_cannot_name_a_service(name: str, word: str) -> None:
    """ai-dynamo/dynamo#4938 (B18): a name that fails later must be refused at once, with the limit."""
    found = refusals(service({}, name=name), KNOWN)
    assert found[0].field == "metadata.name"
    assert word in message(found)


SECRETS: list[tuple[str, dict[str, Any]]] = [
    ("a variable", {"engine": {"env": [{"name": "POD_IP", "value": "sk-secret"}]}}),
    ("a variable by template", {"decode": container(env=[{"name": "POD_IP", "value": "sk-secret"}])}),
    ("a key of vLLM's", {**VLLM, "engine": {"name": "vllm", "env": [{"name": "VLLM_API_KEY", "value": "sk-secret"}]}}),
    ("behind =", {**VLLM, "engine": {"name": "vllm", "args": ["--api-key=sk-secret"]}}),
    ("behind = of a flag that there is not", {"engine": {"args": ["--key=sk-secret"]}}),
    ("behind a space", {"engine": {"args": ["--key sk-secret"]}}),
    ("a value alone", {"engine": {"args": ["sk-secret"]}}),
    ("behind a variable", {"engine": {"image": "mine:1", "args": ["$(A)=sk-secret"]}}),
    ("arguments by template", {"decode": container(args=["--key=sk-secret"])}),
    ("a command by template", {"decode": container(command=["/bin/sh", "-c", "KEY=sk-secret serve"])}),
]  # fmt: skip


@pytest.mark.parametrize("spec", [case[1] for case in SECRETS], ids=[case[0] for case in SECRETS])
def test_values_of_flags_and_variables_are_never_told(spec: dict[str, Any]) -> None:
    """Refusals stand in status and events, which more people may read than the spec."""
    found = refusals(service(spec), KNOWN)
    assert found
    assert "sk-secret" not in message(found)


@pytest.mark.parametrize(
    "engine",
    [
        {"env": [{"name": "A", "value": ["sk-secret"]}]},
        {"env": [{"value": "sk-secret"}]},
        {"env": [{"name": "A", "valeu": "sk-secret"}]},
        {"args": {"--key": "sk-secret"}},
    ],
)
def test_nor_by_a_spec_that_cannot_be_read(engine: dict[str, Any]) -> None:
    of, found = read(service_body({"engine": engine}))
    assert of is None
    assert "spec.engine." in message(found)
    assert "sk-secret" not in message(found)


def test_an_adapter_has_no_revision_that_an_engine_could_be_told() -> None:
    adapters = [{"name": "legal", "uri": "hf://org/legal@v2"}, {"name": "plain", "uri": "hf://org/plain"}]
    spec = {**VLLM, "model": {**VLLM["model"], "adapters": adapters}}
    [found] = refusals(service(spec), KNOWN)
    assert (found.reason, found.field, found.value) == (
        Reason.SETTING_NOT_SUPPORTED, "spec.model.adapters", "hf://org/legal@v2",
    )  # fmt: skip
    assert "leave @v2 out" in found.problem


def test_everything_wrong_is_listed_at_once() -> None:
    """A message that hides the true blocker behind another (C09)."""
    found = refusals(
        service({"accelerator": "h2000", "cache": {"kvTokens": 1024}, "engine": {"args": ["--port=1"]}}), KNOWN
    )
    assert len(found) == 3
    assert all(refusal.field in message(found) for refusal in found)


def test_announced_hardware_gets_no_pods() -> None:
    body = merged(KNOWN["cpu"].manifest(), {"spec": {"availability": "Announced"}})  # type: ignore[union-attr]
    found = refusals(service(), KNOWN | {"cpu": Accelerator.read(body)})
    assert [refusal.reason for refusal in found] == [Reason.ACCELERATOR_NOT_AVAILABLE]


def test_hardware_without_figures_cannot_be_simulated() -> None:
    body = merged(KNOWN["h200"].manifest(), {"spec": {"memoryBandwidth": None}})  # type: ignore[union-attr]
    found = refusals(service(simulated()), KNOWN | {"h200": Accelerator.read(body)})
    assert "memoryBandwidth" in message(found)


def test_a_spec_of_another_versions_schema_is_refused_with_field_and_value() -> None:
    found = read(service_body({"model": {"uri": "ftp://x"}, "decode": {"replicas": {"min": 0}}}))
    assert found[0] is None
    assert {refusal.field for refusal in found[1]} == {"spec.model.uri", "spec.decode.replicas.min"}
    assert "ftp://x" in message(found[1])


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (
            {"model": {"uri": "hf://Qwen"}},
            "spec.model.uri: hf://Qwen: write hf://OWNER/NAME[@REVISION], oci://NAME:TAG",
        ),
        ({"model": {"uri": "ftp://x/y"}}, "spec.model.uri: ftp://x/y: write hf://"),
        ({"model": {"servedName": "my model"}}, "spec.model.servedName: my model: write letters, digits and"),
        ({"engine": {"version": "v0.32"}}, "spec.engine.version: v0.32: write two or three numbers, such as 0.32"),
    ],
)
def test_a_text_of_another_form_is_refused_in_words(spec: dict[str, Any], says: str) -> None:
    """A pattern of hundreds of characters tells nobody how to write one."""
    _, found = read(service_body(spec))
    assert says in message(found)
    assert "^" not in message(found)


def test_long_messages_are_cut() -> None:
    args = [f"--port={'9' * 100}"] * 64
    assert len(message(refusals(service({"engine": {"args": args}}), KNOWN))) <= MESSAGE_LIMIT


@pytest.mark.parametrize(
    ("field", "because"),
    [
        ({"spec": {"decode": {"template": {"spec": {"hostNetwork": True}}}}}, "C20, C21: no port can meet another's"),
        ({"spec": {"decode": {"template": {"spec": {"volumes": [{"name": "x", "hostPath": {"path": "/"}}]}}}}},
         "no path of the node"),
        ({"spec": {"decode": {"template": {"spec": {"serviceAccountName": "admin"}}}}}, "no other account"),
        ({"spec": {"decode": container(securityContext={"privileged": True})}}, "no privileges"),
        ({"spec": {"decode": {"cache": {"blockTokens": 32}}}}, "C17: KV layout is the service's, never a role's"),
        ({"spec": {"autoscaling": {"prometheus": {"url": "http://169.254.169.254/"}}}}, "G06: no address per service"),
        ({"spec": {"decode": {"template": {"spec": {"resourceClaims": [{"name": "gpu"}]}}}}}, "A11: accelerators are counted"),
        ({"spec": {"decode": container(resources={"claims": [{"name": "gpu"}]})}}, "A11: by the operator alone"),
        ({"spec": {"decode": {"scaling": {"actuator": "hpa"}}}}, "A43: one scaler for both roles"),
        ({"spec": {"autoscaling": {"signals": [{"name": "kv_cache_usage", "target": 50}]}}}, "A46: no signal in any unit"),
        ({"spec": {"model": {"uri": "http://kubernetes.default.svc/api/v1/secrets"}}}, "G06: schemes are an allow-list"),
    ],
)  # fmt: skip
def test_what_the_types_cannot_even_say(field: dict[str, Any], because: str) -> None:
    with pytest.raises(ValidationError):
        InferenceService.read(merged(service_body(), field))
    assert because


def test_shapes_are_complete_enough() -> None:
    assert set(SHAPE) >= {"parameters", "layers", "hiddenSize"}

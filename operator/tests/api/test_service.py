"""The types: defaults are resolved role over service over engine, manifests survive reading and writing."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError
from steelyard.api.model import HubSource, ModelSource, ModelSpec, OciSource, PvcSource
from steelyard.api.roles import Replicas
from steelyard.api.rules import sample
from steelyard.api.service import InferenceService

EXAMPLES = sorted((Path(__file__).parents[3] / "docs" / "examples").glob("*.yaml"))


def service(**spec: Any) -> InferenceService:
    return InferenceService.read(sample({"spec": spec}))


def test_the_smallest_service_has_all_it_needs() -> None:
    smallest = service()
    assert smallest.served_name == "sample"
    assert list(smallest.spec.roles) == ["prefill", "decode"]
    assert smallest.spec.accelerator_of("decode") == "cpu"
    assert smallest.spec.roles["prefill"].replicas == Replicas(min=1)
    assert smallest.spec.objectives.window.seconds == 300


@pytest.mark.parametrize(
    ("given", "role", "wanted"),
    [
        ({}, "prefill", ("chunked", 8, 512, None)),
        ({"engine": {"name": "simulated"}}, "prefill", ("chunked", 256, 8192, None)),
        ({"batching": {"maxSequences": 4}}, "decode", ("chunked", 4, 512, None)),
        ({"batching": {"maxSequences": 4}, "decode": {"batching": {"maxSequences": 6}}}, "decode", ("chunked", 6, 512, None)),
        ({"batching": {"maxSequences": 4}, "decode": {"batching": {"maxSequences": 6}}}, "prefill", ("chunked", 4, 512, None)),
        ({"batching": {"strategy": "continuous"}}, "prefill", ("continuous", 8, 2048, None)),
        ({"batching": {"strategy": "dynamic"}}, "prefill", ("dynamic", 8, 2048, 0.05)),
        ({"batching": {"strategy": "dynamic", "maxWait": "1s"}}, "prefill", ("dynamic", 8, 2048, 1.0)),
        ({"batching": {"strategy": "dynamic", "maxWait": "1s"}, "prefill": {"batching": {"strategy": "static"}}}, "prefill",
         ("static", 8, 2048, None)),
    ],
)  # fmt: skip
def test_batching_is_resolved(given: dict[str, Any], role: str, wanted: tuple[str, int, int, float | None]) -> None:
    batching = service(**given).spec.batching_of(role)
    seconds = batching.max_wait.seconds if batching.max_wait else None
    assert (batching.strategy, batching.max_sequences, batching.max_batch_tokens, seconds) == wanted


def test_kv_tokens_default_to_full_sequences() -> None:
    assert service().spec.kv_tokens_of("decode") == 8 * 2048
    assert service(cache={"kvTokens": 4096}).spec.kv_tokens_of("decode") == 4096


def test_a_roles_accelerator_rules() -> None:
    spec = service(accelerator="h200", decode={"accelerator": "h100"}).spec
    assert (spec.accelerator_of("prefill"), spec.accelerator_of("decode")) == ("h200", "h100")


@pytest.mark.parametrize(
    ("replicas", "wanted", "got"),
    [({"min": 2}, 9, 2), ({"min": 1, "max": 4}, 9, 4), ({"min": 2, "max": 4}, 0, 2), ({"min": 1, "max": 4}, 3, 3)],
)
def test_clamp_keeps_the_bounds(replicas: dict[str, int], wanted: int, got: int) -> None:
    assert Replicas.read(replicas).clamp(wanted) == got


@pytest.mark.parametrize(
    ("uri", "source"),
    [
        ("oci://steelyard/model-smollm2:0.1.2", OciSource(image="steelyard/model-smollm2:0.1.2")),
        ("oci://r.example:5000/a/b:v1/q4/m.gguf", OciSource(image="r.example:5000/a/b:v1", path="q4/m.gguf")),
        (f"oci://a/b:1@sha256:{'0' * 64}/m", OciSource(image=f"a/b:1@sha256:{'0' * 64}", path="m")),
        ("pvc://models", PvcSource(claim="models")),
        ("pvc://models/qwen/m.gguf", PvcSource(claim="models", path="qwen/m.gguf")),
        ("hf://Qwen/Qwen3-32B", HubSource(repository="Qwen/Qwen3-32B")),
        ("hf://Qwen/Qwen3-32B@refs/pr/1", HubSource(repository="Qwen/Qwen3-32B", revision="refs/pr/1")),
    ],
)
def test_a_uri_names_its_source(uri: str, source: ModelSource) -> None:
    assert ModelSpec(uri=uri).source == source


@pytest.mark.parametrize(
    "uri",
    [
        "http://kubernetes.default.svc/api/v1/secrets",
        "https://example.org/m.gguf",
        "file:///etc/passwd",
        "oci://steelyard/model",
        "oci://a:1/../../etc",
        "pvc://models/../x",
        "pvc://models//x",
        "hf://Qwen",
        "hf://../Qwen",
        "qwen",
        "oci://a:1\n",
    ],
)
def test_other_uris_are_refused(uri: str) -> None:
    """Only known schemes, and no way out of the weights' folder (infiniflow/ragflow#8442)."""
    with pytest.raises(ValidationError, match="uri"):
        ModelSpec(uri=uri)


def test_an_unknown_field_is_refused_by_name() -> None:
    with pytest.raises(ValidationError, match=r"spec\.decode\.replica\b"):
        service(decode={"replica": {"min": 1}})


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_examples_survive_reading_and_writing(example: Path) -> None:
    for body in yaml.safe_load_all(example.read_text()):
        once = InferenceService.read(body)
        assert InferenceService.read(once.manifest()) == once

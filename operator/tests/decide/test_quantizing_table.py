"""Which Jobs a spec needs: one a model's revision and recipe, whoever asks for it; and what is refused of such a spec."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from operator_bodies import KNOWN, merged, service
from steelyard.api.reasons import Reason
from steelyard.decide.accept import refusals
from steelyard.decide.quantizing import RECIPES, Order, orders, under_way
from steelyard.decide.snapshot import Job, Trouble

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "quantize.md"
SPEC: dict[str, Any] = {
    "model": {"uri": "hf://org/model@v1", "servedName": None},
    "engine": {"name": "vllm"},
    "accelerator": "h200",
    "quantization": {"source": "Job", "weights": "int8", "job": {"claim": "quantized"}},
}


def order(change: dict[str, Any] | None = None, name: str = "chat") -> Order:
    [found] = orders(service(merged(SPEC, change or {}), name=name))
    return found


SAME_FOLDER = [
    ({"model": {"contextLength": 4096}}, "the context is the engine's"),
    ({"accelerator": "h100"}, "a checkpoint is of no hardware"),
    ({"quantization": {"kvCache": "fp8"}}, "the cache is the engine's"),
    ({"quantization": {"job": {"claim": "another"}}}, "the folder's name says nothing of its claim"),
    ({"quantization": {"job": {"resources": {"limits": {"memory": "8Gi"}}}}}, "more memory gives the same weights"),
    ({"model": {"credentials": {"secretName": "hub"}}}, "whoever may fetch them fetches the same"),
]
OTHER_FOLDER = [
    ({"model": {"uri": "hf://org/model@v2"}}, "another revision"),
    ({"model": {"uri": "hf://other/model@v1"}}, "another model of that name"),
    ({"quantization": {"weights": "fp8"}}, "another format"),
    ({"quantization": {"job": {"samples": 256}}}, "other samples"),
]


@pytest.mark.parametrize(("change", "because"), SAME_FOLDER)
def test_what_does_not_change_the_weights_finds_them_again(change: dict[str, Any], because: str) -> None:
    assert order(change).folder == order().folder, because


@pytest.mark.parametrize(("change", "because"), OTHER_FOLDER)
def test_what_changes_the_weights_has_a_folder_of_its_own(change: dict[str, Any], because: str) -> None:
    assert order(change).folder != order().folder, because
    assert order(change).job != order().job, because


def test_another_service_has_a_job_of_its_own_that_finds_the_folder() -> None:
    mine, theirs = order(), order(name="other")
    assert mine.folder == theirs.folder
    assert mine.job != theirs.job


def test_a_job_is_another_one_where_its_pod_would_be() -> None:
    assert order({"quantization": {"job": {"resources": {"limits": {"memory": "8Gi"}}}}}).job != order().job
    assert order({"model": {"credentials": {"secretName": "hub"}}}).job != order().job
    assert order({"model": {"contextLength": 4096}}).job == order().job


CLAIMS = [
    ({}, "quantized", "the written one"),
    ({"model": {"uri": "pvc://weights/llama"}, "quantization": {"job": None}}, "weights", "where the weights are"),
    (
        {"model": {"cache": {"kind": "claim", "claim": "models"}}, "quantization": {"job": None}},
        "models",
        "where the hub's files are kept",
    ),
]


@pytest.mark.parametrize(("change", "claim", "because"), CLAIMS)
def test_the_claim_is_the_written_one_or_that_of_the_weights(change: dict[str, Any], claim: str, because: str) -> None:
    assert order(change).claim == claim, because


def test_names_are_fit_for_objects_and_folders() -> None:
    found = order({"model": {"uri": "hf://org/A_Model.With-Capitals@refs/pr/1"}}, name="a" * 60)
    assert len(found.job) <= 63
    assert found.folder.startswith("a_model.with-capitals-int8-")


REFUSED = [
    ({"quantization": {"weights": "auto"}}, "spec.quantization.weights", "no format to make"),
    ({"quantization": {"activations": "none"}}, "spec.quantization.activations", "the recipe says it"),
    ({"quantization": {"job": None}}, "spec.quantization.job.claim", "no place"),
    ({"model": {"uri": "s3://bucket/model"}}, "spec.model.uri", "an object store is read by engines alone"),
    ({"engine": {"name": "llama-cpp"}, "accelerator": "cpu"}, "spec.quantization.source", "it reads another form"),
]


@pytest.mark.parametrize(("change", "field", "because"), REFUSED)
def test_what_a_job_cannot_do_is_refused_by_its_field(change: dict[str, Any], field: str, because: str) -> None:
    found = [refusal.field for refusal in refusals(service(merged(SPEC, change)), KNOWN)]
    assert field in found, because
    assert refusals(service(SPEC), KNOWN) == ()


STATES = [
    (None, "Waiting"),
    (Job("", False, False, False, ""), "Waiting"),
    (Job("", False, False, True, "layer 1 of 30"), "Running"),
    (Job("", False, True, False, "error: no space"), "Failed"),
]


@pytest.mark.parametrize(("job", "state"), STATES)
def test_it_is_under_way_until_every_job_is_done(job: Job | None, state: str) -> None:
    wanted = service(SPEC)
    name = order().job
    seen = [] if job is None else [Job(name, job.done, job.failed, job.runs, job.words)]
    found = under_way(wanted, [Job("of-another-spec", True, False, False, ""), *seen])
    assert found is not None
    assert [step.state for step in found.steps] == [state]
    assert (found.failed is not None) == (state == "Failed")
    assert under_way(wanted, [Job(name, True, False, False, "")]) is None
    assert under_way(service(merged(SPEC, {"quantization": None})), []) is None


MADE = 1000.0
STUCK = [
    (
        Job("", False, False, False, "0/3 nodes", Trouble(Reason.UNSCHEDULABLE, "0/3 nodes")),
        "make the claim",
        "no node",
    ),
    (
        Job("", False, False, False, "no image", Trouble(Reason.IMAGE_UNAVAILABLE, "no image")),
        "images.quantize",
        "wrong",
    ),
    (Job("", False, False, False, "no key", Trouble(Reason.PODS_REFUSED, "no key")), "kubectl describe", "no Secret"),
    (Job("", False, False, False, "", podless_since=MADE - 60), "kubectl describe", "no pod for a minute"),
    (Job("", False, False, False, "", podless_since=MADE - 59), None, "its pod may still come"),
    (Job("", False, False, False, "its pod starts"), None, "it starts"),
]


@pytest.mark.parametrize(("job", "remedy", "because"), STUCK)
def test_a_job_that_cannot_start_is_told_with_its_remedy(job: Job, remedy: str | None, because: str) -> None:
    found = under_way(service(SPEC), [replace(job, name=order().job)], MADE)
    assert found is not None
    assert found.failed is None
    assert (found.stuck is not None) == (remedy is not None), because
    if remedy is not None:
        assert found.stuck is not None
        assert remedy in found.stuck.remedy
        assert found.stuck.words


READ = [("vllm", {"nf4", "ternary"}), ("sglang", {"ternary"})]


@pytest.mark.parametrize(("engine", "lacks"), READ)
def test_only_formats_that_the_engine_reads_are_offered(engine: str, lacks: set[str]) -> None:
    change = {"engine": {"name": engine}, "topology": "Aggregated", "quantization": {"weights": "auto"}}
    [told] = [r for r in refusals(service(merged(SPEC, change)), KNOWN) if r.field == "spec.quantization.weights"]
    offered = set(re.findall(r"[a-z0-9-]+", told.problem.partition(" makes ")[2].partition(";")[0]))
    assert offered == set(RECIPES) - lacks
    guide = GUIDE.read_text()
    assert all(f"`{recipe}`" in guide for recipe in RECIPES)

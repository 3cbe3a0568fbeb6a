"""Weights that a Job quantizes: made once, told of, waited for; what served before goes on meanwhile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from memory_api import MemoryApi
from operator_bodies import SITE, merged, service_body
from quantize_world import end_job, ended, put_pod, running, the_job
from steelyard.catalog.accelerators import ACCELERATORS
from steelyard.run.reconcile import Reconciler
from test_reconcile_loop import World

JOB = {"source": "Job", "weights": "int8", "job": {"claim": "quantized"}}


class Quantized(World):
    """A service of vLLM whose weights a Job quantizes."""

    def __init__(self, quantization: dict[str, Any] | None = None, **meta: Any) -> None:
        super().__init__()
        self.api = MemoryApi()
        for accelerator in ACCELERATORS.values():
            self.api.put(accelerator.manifest())
        spec = {
            "model": {"uri": "hf://org/model@v1", "servedName": None},
            "engine": {"name": "vllm"},
            "accelerator": "h200",
        }
        self.api.put(service_body(spec | {"quantization": JOB if quantization is None else quantization}, **meta))

    def kinds(self, kind: str) -> list[str]:
        return [one for one in self.api.kinds() if one.startswith(f"{kind}/")]

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.api.body("InferenceService", "chat")["status"]
        return found


def test_the_job_comes_first_and_alone_and_the_engines_after_it_is_done() -> None:
    world = Quantized()
    again = world.reconcile().again_after
    [name] = world.kinds("Job")
    assert world.kinds("Deployment") == world.kinds("Service") == world.kinds("ControllerRevision") == []
    assert again is not None
    assert again < 60, "its log tells nobody of progress"
    assert world.condition("ModelReady") == ("False", "Quantizing")
    assert world.condition("Progressing") == ("True", "Quantizing")
    assert world.condition("Available") == ("False", "Quantizing")
    end_job(world.api, "Complete")
    world.reconcile()
    assert len(world.kinds("Deployment")) == 3
    assert "quantization" not in world.status()
    assert any(reason == "Quantized" for reason, _ in world.api.events)
    claims = [
        volume["persistentVolumeClaim"]["claimName"]
        for role in ("prefill", "decode")
        for volume in world.api.body("Deployment", f"chat-{role}")["spec"]["template"]["spec"]["volumes"]
        if volume["name"] == "models"
    ]
    assert claims == ["quantized", "quantized"]
    world.settle()
    world.reconcile()
    assert world.api.writes == []
    assert world.kinds("Job") == [name], "what the engines read was made by it"


def test_progress_is_told_layer_by_layer() -> None:
    world = Quantized()
    world.reconcile()
    assert world.status()["quantization"][0]["state"] == "Waiting"
    put_pod(world.api, running(), log="layer 1 of 30\nlayer 2 of 30\n")
    world.reconcile()
    [told] = world.status()["quantization"]
    assert (told["state"], told["recipe"], told["progress"]) == ("Running", "int8", "layer 2 of 30")
    assert "layer 2 of 30" in world.message("ModelReady")
    assert world.status().get("ready") is None, "its pod is no replica"


def test_a_failure_shows_the_end_of_the_log_and_the_remedy_and_a_deleted_job_is_made_again() -> None:
    world = Quantized()
    world.reconcile()
    put_pod(world.api, ended(1, "layer 0 of 30\nerror: model.norm.weight has values that are not finite"))
    end_job(world.api, "Failed", "Pod failed with exit code 1")
    world.reconcile()
    for kind in ("ModelReady", "Progressing", "Available"):
        assert world.condition(kind) == ("False", "QuantizeFailed")
    message = world.message("ModelReady")
    assert "values that are not finite" in message
    name = the_job(world.api)["metadata"]["name"]
    assert f"delete Job {name}" in message
    assert [reason for reason, _ in world.api.events].count("QuantizeFailed") == 1
    world.reconcile()
    assert [reason for reason, _ in world.api.events].count("QuantizeFailed") == 1
    world.api.remove("Job", name)
    world.reconcile()
    assert the_job(world.api)["metadata"]["name"] == name
    assert world.condition("Progressing") == ("True", "Quantizing")


def test_what_serves_goes_on_while_another_format_is_made_and_when_it_cannot_be() -> None:
    world = Quantized(quantization={})
    world.settle()
    world.run_pods()
    before = world.kinds("Deployment")
    world.respec({"quantization": JOB})
    world.reconcile()
    [first] = world.kinds("Job")
    assert world.kinds("Deployment") == before
    assert world.condition("Available") == ("True", "Serving")
    assert world.condition("Progressing") == ("True", "Quantizing")
    end_job(world.api, "Failed", "DeadlineExceeded")
    world.reconcile()
    assert world.kinds("Deployment") == before
    assert world.condition("Available") == ("True", "Serving")
    world.respec({"quantization": merged(JOB, {"weights": "fp8"})})
    world.reconcile()
    [second] = world.kinds("Job")
    assert second != first, "the Job of a spec that is no more wanted is gone"
    end_job(world.api, "Complete")
    world.reconcile()
    args = world.api.body("Deployment", "chat-decode")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "-fp8-" in args[0]


def test_a_corrected_spec_is_another_job_where_nothing_serves_yet() -> None:
    world = Quantized()
    world.reconcile()
    [first] = world.kinds("Job")
    world.respec({"quantization": merged(JOB, {"job": {"resources": {"requests": {"memory": "8Gi"}}}})})
    world.reconcile()
    [second] = world.kinds("Job")
    assert second != first


def test_a_new_release_makes_no_job_again() -> None:
    world = Quantized()
    world.reconcile()
    before = the_job(world.api)
    newer = Reconciler(
        world.api, SITE.__class__(**{**SITE.__dict__, "quantize_image": "steelyard/quantize:2"}), "o", 300
    )
    newer("team-a", "chat", 0, world.now)
    assert the_job(world.api)["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


@pytest.mark.parametrize("by", ["role", "service"])
def test_two_roles_in_two_formats_are_two_jobs_and_both_are_waited_for(by: str) -> None:
    own = {"quantization": {"weights": "fp8"}} if by == "role" else {}
    world = Quantized()
    world.respec({"prefill": own} if own else {})
    world.reconcile()
    jobs = world.kinds("Job")
    assert len(jobs) == (2 if by == "role" else 1)
    for number, place in enumerate(jobs):
        told = {"type": "Complete", "status": "True"}
        world.api.edit("Job", place.partition("/")[2], {"status": {"conditions": [told]}})
        world.reconcile()
        assert bool(world.kinds("Deployment")) == (number == len(jobs) - 1)


def test_an_installation_without_an_image_for_it_refuses() -> None:
    world = Quantized()
    operator = Reconciler(world.api, SITE.__class__(**{**SITE.__dict__, "quantize_image": None}), "o", 300)
    operator("team-a", "chat", 0, world.now)
    assert world.condition("Accepted") == ("False", "SettingNotSupported")
    assert "images.quantize" in world.message("Accepted")
    assert world.kinds("Job") == []


NO_IMAGE = {
    "phase": "Pending",
    "containerStatuses": [
        {"name": "quantize", "state": {"waiting": {"reason": "ErrImagePull", "message": "quantize:0 not found"}}}
    ],
}


def test_a_job_that_cannot_start_is_told_and_made_anew_once_the_installation_is_corrected() -> None:
    world = Quantized()
    world.reconcile()
    before = the_job(world.api)["metadata"]
    put_pod(world.api, NO_IMAGE)
    world.reconcile()
    for kind in ("ModelReady", "Progressing", "Available"):
        assert world.condition(kind) == ("False", "WeightsUnavailable"), "what the alert for weights looks at"
    assert "quantize:0 not found" in world.message("ModelReady")
    assert "images.quantize" in world.message("ModelReady")
    assert the_job(world.api)["metadata"]["uid"] == before["uid"], "nothing has changed, so it would fare no better"
    corrected = Reconciler(world.api, replace(SITE, quantize_image="steelyard/quantize:2"), "o", 300)
    corrected("team-a", "chat", 0, world.now)
    assert world.kinds("Job") == []
    corrected("team-a", "chat", 0, world.now)
    after = the_job(world.api)
    assert after["metadata"]["name"] == before["name"]
    assert after["metadata"]["uid"] != before["uid"]
    assert after["spec"]["template"]["spec"]["containers"][0]["image"] == "steelyard/quantize:2"
    versions = after["metadata"]["resourceVersion"]
    corrected("team-a", "chat", 0, world.now)
    assert the_job(world.api)["metadata"]["resourceVersion"] == versions, "once"


@pytest.mark.parametrize("serves", [True, False])
def test_a_refused_edit_leaves_the_job_at_its_work(serves: bool) -> None:
    world = Quantized(quantization={} if serves else None)
    if serves:
        world.settle()
        world.run_pods()
        world.respec({"quantization": JOB})
    world.reconcile()
    before = the_job(world.api)["metadata"]["uid"]
    world.respec({"accelerator": "h2000"})
    world.reconcile()
    assert world.condition("Accepted") == ("False", "UnknownAccelerator")
    assert the_job(world.api)["metadata"]["uid"] == before
    world.respec({"accelerator": "h200"})
    world.reconcile()
    assert the_job(world.api)["metadata"]["uid"] == before
    assert world.condition("Progressing") == ("True", "Quantizing")


LEFT = [
    ({"quantization": {"source": "Checkpoint", "job": None}}, "the spec needs it no more"),
    ({"accelerator": "h2000"}, "the spec is refused"),
    ({"quantization": {"weights": "fp8"}}, "another format is wanted"),
]


@pytest.mark.parametrize(("change", "because"), LEFT)
def test_that_it_is_quantized_is_told_only_of_jobs_that_are_done(change: dict[str, Any], because: str) -> None:
    world = Quantized()
    world.reconcile()
    put_pod(world.api, running(), log="layer 2 of 30\n")
    world.reconcile()
    world.respec(change)
    world.reconcile()
    world.reconcile()
    assert [note for reason, note in world.api.events if reason == "Quantized"] == [], because


def test_that_it_is_quantized_is_told_in_words_of_its_own() -> None:
    world = Quantized()
    world.reconcile()
    end_job(world.api, "Complete")
    world.reconcile()
    world.reconcile()
    [told] = [note for reason, note in world.api.events if reason == "Quantized"]
    name = the_job(world.api)["metadata"]["name"]
    assert told.startswith("int8 is in folder model-int8-")
    assert told.endswith(f"by Job {name}")


def test_what_serves_is_scaled_while_weights_are_quantized() -> None:
    world = Quantized(quantization={})
    world.settle()
    world.run_pods()
    world.respec({"quantization": JOB, "decode": {"replicas": {"min": 3, "max": 5}}})
    world.reconcile()
    assert world.condition("Progressing") == ("True", "Quantizing")
    assert world.api.body("Deployment", "chat-decode")["spec"]["replicas"] == 3
    world.respec({"topology": "Aggregated", "prefill": None, "decode": None})
    world.reconcile()
    assert world.kinds("Deployment") == ["Deployment/chat", "Deployment/chat-decode", "Deployment/chat-prefill"]
    assert world.condition("Progressing")[1] == "Quantizing", "no pool of the new roles is there to be scaled"

"""The Job's pod: where it reads, where it writes, how it is confined, and what no repetition helps."""

from __future__ import annotations

from typing import Any

import pytest
from operator_bodies import KNOWN, SITE, merged, service
from steelyard.build import security
from steelyard.build.quantize import job
from steelyard.build.render import children
from steelyard.decide.quantizing import orders

Body = dict[str, Any]
SPEC: Body = {
    "model": {"uri": "hf://org/model@v1", "servedName": None},
    "engine": {"name": "vllm"},
    "accelerator": "h200",
    "quantization": {"source": "Job", "weights": "int8", "job": {"claim": "quantized"}},
}


def built(change: Body | None = None) -> Body:
    wanted = service(merged(SPEC, change or {}))
    [order] = orders(wanted)
    return job(wanted, order, SITE)


def pod(body: Body) -> Body:
    found: Body = body["spec"]["template"]["spec"]
    return found


def volumes(spec: Body) -> dict[str, Body]:
    return {volume["name"]: volume for volume in spec["volumes"]}


def mounts(container: Body) -> dict[str, Body]:
    return {mount["mountPath"]: mount for mount in container["volumeMounts"]}


SOURCES = [
    ({}, "emptyDir", "weights"),
    ({"model": {"cache": {"kind": "claim", "claim": "models"}}}, "persistentVolumeClaim", "weights"),
    ({"model": {"uri": "oci://steelyard/weights:1"}}, "emptyDir", "weights"),
    ({"model": {"uri": "pvc://other/llama"}}, "persistentVolumeClaim", None),
]


@pytest.mark.parametrize(("change", "kind", "init"), SOURCES)
def test_weights_are_brought_as_for_an_engine_and_cannot_be_changed(change: Body, kind: str, init: str | None) -> None:
    spec = pod(built(change))
    [container] = spec["containers"]
    assert kind in volumes(spec)["models"]
    assert mounts(container)["/models"]["readOnly"] is True
    assert [one["name"] for one in spec.get("initContainers", [])] == ([init] if init else [])
    source, target = container["args"][:2]
    assert source.startswith("/models")
    assert target.startswith("/quantized/")
    assert volumes(spec)["quantized"]["persistentVolumeClaim"] == {"claimName": "quantized"}


LOADERS = [
    ({}, True, "a hub's files are fetched"),
    ({"model": {"cache": {"kind": "claim", "claim": "models"}}}, True, "into a cache too"),
    ({"model": {"cache": {"kind": "claim", "claim": "quantized"}}}, True, "which may be on the same claim"),
    ({"model": {"uri": "oci://steelyard/weights:1"}}, False, "an image is there before its program runs"),
]


@pytest.mark.parametrize(("change", "asked", "because"), LOADERS)
def test_nothing_is_fetched_for_what_is_made_already(change: Body, asked: bool, because: str) -> None:
    spec = pod(built(change))
    target = spec["containers"][0]["args"][1]
    [loader] = spec["initContainers"]
    assert (f"--unless={target}" in loader.get("args", [])) == asked, because
    if asked:
        mount = mounts(loader)["/quantized"]
        assert mount["readOnly"] is True
        claim = volumes(spec)[mount["name"]]["persistentVolumeClaim"]
        assert claim == {"claimName": "quantized"}, "the loader may not write where the Job does, the Job may"


def test_a_claim_that_holds_both_is_mounted_once() -> None:
    """A pod that names a claim by two volumes is never started."""
    spec = pod(built({"model": {"uri": "pvc://weights/llama"}, "quantization": {"job": None}}))
    claims = [one["persistentVolumeClaim"] for one in spec["volumes"] if "persistentVolumeClaim" in one]
    assert claims == [{"claimName": "weights"}]
    found = mounts(spec["containers"][0])
    assert found["/models"]["name"] == found["/quantized"]["name"]
    assert found["/models"]["readOnly"] is True


def test_it_is_confined_like_every_pod_of_ours() -> None:
    spec = pod(built())
    assert spec["securityContext"] == security.POD
    assert all(one["securityContext"] == security.CONTAINER for one in [*spec["containers"], *spec["initContainers"]])
    assert spec["automountServiceAccountToken"] is False
    assert spec["restartPolicy"] == "Never"


def test_threads_are_those_of_its_processors() -> None:
    def threads(change: Body | None) -> str:
        return next(
            str(one["value"]) for one in pod(built(change))["containers"][0]["env"] if one["name"] == "OMP_NUM_THREADS"
        )

    assert threads(None) == "1"
    assert threads({"quantization": {"job": {"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "8"}}}}}) == "8"


def test_what_no_repetition_helps_ends_it_and_evictions_do_not_count() -> None:
    rules = built()["spec"]["podFailurePolicy"]["rules"]
    assert [(rule["action"], rule.get("onExitCodes", {}).get("values")) for rule in rules] == [
        ("FailJob", [1, 2]),
        ("Ignore", None),
    ]


def test_engines_read_the_folder_that_it_fills_and_ask_for_no_format() -> None:
    wanted = service(SPEC)
    bodies = children(wanted, KNOWN, SITE)
    [made] = [body for body in bodies if body["kind"] == "Job"]
    kinds = [body["kind"] for body in bodies]
    assert kinds.index("Job") < kinds.index("Deployment")
    folder = pod(made)["containers"][0]["args"][1].removeprefix("/quantized/")
    for body in bodies:
        if body["kind"] != "Deployment" or "gateway" in body["metadata"]["labels"].values():
            continue
        spec = pod(body)
        engine = spec["containers"][0]
        assert engine["args"][0] == f"/models/{folder}"
        assert volumes(spec)["models"] == {
            "name": "models",
            "persistentVolumeClaim": {"claimName": "quantized", "readOnly": True},
        }
        assert "--quantization" not in engine["args"]
        assert "initContainers" not in spec

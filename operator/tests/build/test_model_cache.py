"""A model that is kept in a cache: what brings it, where engines read it, and who may have it on nodes."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from operator_bodies import KNOWN, SITE, service
from steelyard.build.render import children
from steelyard.decide.accept import refusals
from steelyard.decide.installation import without_node_cache

NODES = dataclasses.replace(SITE, node_cache="/var/cache/models")
URI = "hf://org/model@v1"


def pod(cache: dict[str, Any], **model: Any) -> dict[str, Any]:
    """The decode pods' spec of the embedded engine."""
    made = children(service({"model": {"uri": URI, "cache": cache, **model}}), KNOWN, NODES)
    [found] = [body for body in made if body["kind"] == "Deployment" and body["metadata"]["name"] == "chat-decode"]
    spec: dict[str, Any] = found["spec"]["template"]["spec"]
    return spec


def volume(spec: dict[str, Any]) -> dict[str, Any]:
    [found] = [one for one in spec["volumes"] if one["name"] == "models"]
    return {key: value for key, value in found.items() if key != "name"}


def test_a_claim_is_filled_by_the_loader_and_read_by_the_engine() -> None:
    spec = pod(
        {"kind": "claim", "claim": "models", "files": ["*Q8_0.gguf", "-x*.json"]}, credentials={"secretName": "hub"}
    )
    assert volume(spec) == {"persistentVolumeClaim": {"claimName": "models"}}
    [loader], [engine] = spec["initContainers"], spec["containers"]
    assert loader["name"] == "weights", "what observe/ looks for"
    assert loader["image"] == SITE.gateway_image
    assert loader["command"] == ["tini", "--", "steelyard-loader"]
    arguments = dict(argument.removeprefix("--").split("=", 1) for argument in loader["args"])
    assert [a for a in loader["args"] if a.startswith("--file=")] == ["--file=*Q8_0.gguf", "--file=-x*.json"]
    assert (arguments["repository"], arguments["revision"], arguments["cache"]) == ("org/model", "v1", "/models")
    assert {variable["name"] for variable in loader["env"]} == {"HF_TOKEN", "HF_ENDPOINT"}
    assert all(variable["valueFrom"]["secretKeyRef"]["optional"] for variable in loader["env"])
    assert engine["args"][engine["args"].index("--model") + 1] == f"/models/{arguments['key']}"
    assert [mount["readOnly"] for mount in engine["volumeMounts"] if mount["mountPath"] == "/models"] == [True]
    assert loader["securityContext"]["readOnlyRootFilesystem"] is True


def mounted(container: dict[str, Any]) -> list[dict[str, Any]]:
    return [mount for mount in container["volumeMounts"] if mount["name"] == "models"]


def test_each_namespace_has_a_folder_of_its_own_on_nodes() -> None:
    """The kubelet would make it as root, so the loader makes it; the engine sees no more than its own namespace's."""
    spec = pod({"kind": "node"})
    assert volume(spec) == {"hostPath": {"path": "/var/cache/models", "type": "Directory"}}
    [loader], [engine] = spec["initContainers"], spec["containers"]
    assert mounted(loader) == [{"name": "models", "mountPath": "/models"}]
    assert "--cache=/models/team-a" in loader["args"]
    assert mounted(engine) == [{"name": "models", "mountPath": "/models", "subPath": "team-a", "readOnly": True}]
    [key] = [argument.removeprefix("--key=") for argument in loader["args"] if argument.startswith("--key=")]
    assert engine["args"][engine["args"].index("--model") + 1] == f"/models/{key}"


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_no_engine_reaches_another_namespaces_folder(engine: str) -> None:
    wish = service(
        {"model": {"uri": URI, "cache": {"kind": "node"}}, "engine": {"name": engine}, "accelerator": "h200"}
    )
    made = children(wish, KNOWN, dataclasses.replace(NODES, engine_images={"tensorrt-llm": "example.org/trtllm:1"}))
    templates = [body["spec"]["template"]["spec"] for body in made if "template" in body.get("spec", {})]
    reading = [
        mount for spec in templates for one in spec["containers"] for mount in mounted({"volumeMounts": [], **one})
    ]
    assert len(reading) >= 2, "both roles"
    assert {(mount.get("subPath"), mount.get("readOnly")) for mount in reading} == {("team-a", True)}


def test_other_revisions_and_other_files_are_other_folders() -> None:
    specs = [
        pod({"kind": "node"}),
        pod({"kind": "node", "files": ["*.gguf"]}),
        pod({"kind": "node"}, uri="hf://org/model@v2"),
    ]
    keys = {next(a for a in spec["initContainers"][0]["args"] if a.startswith("--key=")) for spec in specs}
    assert len(keys) == len(specs)
    assert all(key.startswith("--key=org--model-") for key in keys)


def test_engines_that_fetch_from_a_hub_read_the_folder_instead() -> None:
    spec = {
        "model": {"uri": URI, "cache": {"kind": "claim", "claim": "models"}},
        "engine": {"name": "vllm"},
        "accelerator": "h200",
    }
    made = children(service(spec), KNOWN, SITE)
    [found] = [body for body in made if body["kind"] == "Deployment" and body["metadata"]["name"] == "chat-decode"]
    [engine] = found["spec"]["template"]["spec"]["containers"]
    assert any(argument.startswith("/models/org--model-") for argument in engine["args"])
    assert "--revision" not in engine["args"]
    assert "HF_HOME" not in {variable["name"] for variable in engine["env"]}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"model": {"uri": URI}}, "spec.model.uri"),
        (
            {
                "model": {
                    "uri": URI,
                    "cache": {"kind": "node"},
                    "shape": {"parameters": 10, "layers": 1, "hiddenSize": 8},
                },
                "engine": {"name": "simulated"},
                "accelerator": "h200",
            },
            "spec.model.cache.kind",
        ),
    ],
)
def test_what_cannot_be_done_is_refused(spec: dict[str, Any], field: str) -> None:
    assert field in {refusal.field for refusal in refusals(service(spec), KNOWN)}


def test_the_loader_shows_credentials_whatever_the_engine_knows_of_them() -> None:
    cache = {"kind": "claim", "claim": "models"}
    wish = service({"model": {"uri": URI, "cache": cache, "credentials": {"secretName": "hub"}}})
    assert refusals(wish, KNOWN) == ()


def test_nodes_are_the_installations_to_give() -> None:
    wish = service({"model": {"uri": URI, "cache": {"kind": "node"}}})
    [refusal] = without_node_cache(wish, None)
    assert "chart value nodeCache" in refusal.problem
    assert without_node_cache(wish, "/var/cache/models") == ()
    assert without_node_cache(service({"model": {"uri": URI, "cache": {"kind": "claim", "claim": "m"}}}), None) == ()

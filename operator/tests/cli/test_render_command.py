"""`steelyard render`: the operator's own children on the terminal, and its refusals with an exit status."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from engine_bodies import BASES
from operator_bodies import KNOWN, merged, service_body
from steelyard.apply.drift import stamped
from steelyard.build.render import children
from steelyard.cli.main import app
from steelyard.decide.accept import refusals
from steelyard.decide.plan import read
from steelyard.decide.site import Site
from typer.testing import CliRunner


def run(*arguments: str, text: str | None = None) -> Any:
    return CliRunner().invoke(app, ["render", *arguments], input=text)


def test_it_prints_what_the_operator_applies(tmp_path: Path) -> None:
    file = tmp_path / "isv.yaml"
    file.write_text(yaml.safe_dump(service_body()))
    result = run("-f", str(file), "--gateway-image", "g:1", "--engine-image", "e:1")
    assert result.exit_code == 0, result.output
    printed = list(yaml.safe_load_all(result.stdout))
    service, _ = read(service_body())
    assert service is not None
    assert printed == [stamped(child) for child in children(service, KNOWN, Site("g:1", "e:1"))]


def test_a_manifest_that_was_never_applied_has_no_owner_references() -> None:
    body = merged(service_body(), {"metadata": {"uid": None, "generation": None}})
    result = run("-f", "-", text=yaml.safe_dump(body))
    assert result.exit_code == 0
    assert all("ownerReferences" not in child["metadata"] for child in yaml.safe_load_all(result.stdout))


def test_a_refused_service_gives_reasons_and_status_2() -> None:
    result = run("-f", "-", text=yaml.safe_dump(service_body({"accelerator": "h2000"})))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "spec.accelerator: h2000" in result.stderr


def test_what_the_api_server_would_refuse_is_refused_in_its_words() -> None:
    """A CEL rule of the CRD, evaluated without a server."""
    result = run("-f", "-", text=yaml.safe_dump(service_body({"decode": {"replicas": {"min": 3, "max": 2}}})))
    assert result.exit_code == 2
    assert ".spec.decode.replicas: replicas.min is greater than replicas.max" in result.stderr


def test_what_the_operator_refuses_is_refused_in_its_words() -> None:
    spec = {
        "engine": {"name": "vllm"},
        "accelerator": "h100",
        "model": {"uri": "hf://meta-llama/Llama-3.1-70B-Instruct"},
    }
    body = service_body(spec)
    service, _ = read(body)
    assert service is not None
    result = run("-f", "-", text=yaml.safe_dump(body))
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [str(refusal) for refusal in refusals(service, KNOWN)]
    assert "141 GB of weights" in result.stderr


def test_an_engine_without_an_image_is_refused_as_the_operator_refuses_it() -> None:
    spec = merged(BASES["tensorrt-llm"], {"engine": {"image": None}})
    result = run("-f", "-", text=yaml.safe_dump(service_body(spec)))
    assert result.exit_code == 2
    assert "spec.engine.image: (absent): engine tensorrt-llm has no default image" in result.stderr
    result = run("-f", "-", text=yaml.safe_dump(service_body(BASES["tensorrt-llm"])))
    assert result.exit_code == 0, result.stderr
    assert "mirror/tensorrt-llm:1.2.1" in result.stdout


def test_what_is_accepted_with_a_note_is_printed_with_it() -> None:
    spec = {"engine": {"name": "vllm"}, "accelerator": "a100", "model": {"uri": "hf://Qwen/Qwen3-8B-FP8"}}
    result = run("-f", "-", text=yaml.safe_dump(service_body(spec)))
    assert result.exit_code == 0, result.stderr
    assert result.stderr.startswith("note: spec.quantization.weights: auto (fp8): a100 has compute capability 8.0")


@pytest.mark.parametrize("text", ["", "kind: Pod", "a: [b"])
def test_something_else_gives_status_1(text: str) -> None:
    assert run("-f", "-", text=text).exit_code == 1


def test_a_missing_file_gives_status_1() -> None:
    assert run("-f", "/no/such/file").exit_code == 1


def test_users_own_hardware(tmp_path: Path) -> None:
    mine = merged(KNOWN["cpu"].manifest(), {"metadata": {"name": "mine"}})  # type: ignore[union-attr]
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(mine))
    text = yaml.safe_dump(service_body({"accelerator": "mine"}))
    assert run("-f", "-", text=text).exit_code == 2
    assert run("-f", "-", "--accelerators", str(file), text=text).exit_code == 0


def test_files_inside_manifests_are_readable() -> None:
    result = run("-f", "-", text=yaml.safe_dump(service_body()))
    assert "gateway.json: |\n" in result.stdout
    assert "&id" not in result.stdout


def test_engines_images_are_named_as_an_installation_names_them() -> None:
    spec = {**BASES["tensorrt-llm"], "engine": {"name": "tensorrt-llm", "image": None}}
    text = yaml.safe_dump(service_body(spec))
    assert "images.engines.tensorrt-llm" in run("-f", "-", text=text).stderr
    done = run("-f", "-", "--engines", "tensorrt-llm=mirror/trt:1", "--engines", "vllm=mirror/vllm:2", text=text)
    assert done.exit_code == 0, done.output
    pods = [body for body in yaml.safe_load_all(done.stdout) if body["kind"] == "Deployment"]
    images = {one["image"] for body in pods for one in body["spec"]["template"]["spec"]["containers"]}
    assert images == {"mirror/trt:1", "steelyard/gateway"}


@pytest.mark.parametrize("named", ["vllm", "vllm=", "llama-cpp=mine:1", "nobody=image:1"])
def test_an_engine_that_has_no_image_of_its_own_to_name_is_refused(named: str) -> None:
    done = run("-f", "-", "--engines", named, text=yaml.safe_dump(service_body()))
    assert done.exit_code == 2
    assert "NAME=IMAGE" in done.output

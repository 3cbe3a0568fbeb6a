"""Image contexts and tags: pinned with hashes, keyed by content, readable by docker and buildah alike."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from steelyard.cli.main import app
from typer.testing import CliRunner

from e2e import lock
from e2e.images import build
from e2e.images.components import COMPONENTS, Component, requirements, tag
from e2e.platform import EXAMPLES

PYTHON = [component for component in COMPONENTS.values() if component.package]


@pytest.mark.parametrize("component", PYTHON, ids=lambda c: c.name)
def test_requirements_are_pinned_with_hashes_and_name_no_package_of_ours(component: Component) -> None:
    lines = requirements(component)
    assert lines.count("==") >= 3
    entries = re.findall(r"^\S+==(?:.|\\\n)*?[^\\]\n", lines, re.MULTILINE)
    assert all("--hash=sha256:" in entry for entry in entries)
    assert not re.search(r"^steelyard", lines, re.MULTILINE)


def test_the_gateway_carries_no_kopf_and_the_engine_no_kubernetes() -> None:
    assert "kopf==" in requirements(COMPONENTS["operator"])
    assert "kopf==" not in requirements(COMPONENTS["gateway"])
    assert "kubernetes==" not in requirements(COMPONENTS["engine"])


def test_a_packages_entry_ends_with_its_last_hash() -> None:
    lines = "a==1 \\\n    --hash=sha256:1 \\\n    --hash=sha256:2\nb==2 \\\n    --hash=sha256:3\nb-c==3\n"
    assert lock.entry(lines, "a") == "a==1 \\\n    --hash=sha256:1 \\\n    --hash=sha256:2\n"
    assert lock.entry(lines, "b") == "b==2 \\\n    --hash=sha256:3\n"
    assert lock.entry(lines, "b-c") == "b-c==3\n"
    with pytest.raises(LookupError, match="run `uv lock`"):
        lock.entry(lines, "c")


def test_a_tag_changes_with_our_source_and_with_the_base(tmp_path: Path) -> None:
    source = tmp_path / "source.py"
    source.write_text("1")
    component = replace(COMPONENTS["operator"], sources=(source,))
    first = tag(component, "base")
    assert re.fullmatch(r"steelyard/operator:[0-9a-f]{12}", first)
    assert tag(component, "other base") != first
    source.write_text("2")
    assert tag(component, "base") != first


@pytest.mark.parametrize("component", COMPONENTS.values(), ids=lambda c: c.name)
def test_a_containerfile_takes_its_base_as_an_argument_and_runs_as_nobody(component: Component) -> None:
    text = (component.folder / "Containerfile").read_text()
    assert "ARG BASE=debian:bookworm-slim" in text
    last_stage = text[text.rindex("\nFROM ") :]
    assert "USER 65532:65532" in last_stage


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_operator_starts_containers_as_their_images_do(example: Path) -> None:
    """A pod's `command` replaces the image's entry point: without tini in both, a pod deleted at its start stays for long.

    Images of engines that are not ours have no tini: the pod's pause is pid 1 for all its containers there.
    """
    rendered = CliRunner().invoke(app, ["render", "-f", str(example)])
    pods = [
        body["spec"]["template"]["spec"] for body in yaml.safe_load_all(rendered.stdout) if body["kind"] == "Deployment"
    ]
    containers = [(pod, container) for pod in pods for container in pod["containers"]]
    assert "gateway" in {container["name"] for _, container in containers}
    for pod, container in containers:
        if container["image"].startswith("steelyard/"):
            text = (COMPONENTS[container["name"]].folder / "Containerfile").read_text()
            assert f"ENTRYPOINT {json.dumps(container['command'])}" in text
        else:
            assert pod["shareProcessNamespace"] is True


def test_docker_is_taken_only_when_its_daemon_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    client = tmp_path / "docker"
    client.write_text("#!/bin/sh\nexit 1\n")
    client.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert build.choose_builder() == "buildah"
    client.write_text("#!/bin/sh\nexit 0\n")
    assert build.choose_builder() == "docker"

"""The documents keep their word: examples render, links and make targets exist, manifests are admitted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from offline_admission import admit
from steelyard.cli.main import app
from typer.testing import CliRunner

from e2e.cache import REPOSITORY

PAGES = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")])
EXAMPLES = sorted((REPOSITORY / "docs" / "examples").glob("*.yaml"))
FENCED = re.compile(r"```yaml\n(.*?)```", re.DOTALL)


def name(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


def test_there_are_pages_and_examples() -> None:
    assert len(PAGES) > 10
    assert len(EXAMPLES) >= 3


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{name(page)} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    text = page.read_text()
    named = re.findall(r"`make ([a-z -]+)`|^    make ([a-z-]+)", text, re.MULTILINE)
    for inline, indented in named:
        for target in (inline or indented).split():
            assert target in targets, f"{name(page)} names `make {target}`"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_manifests_in_pages_are_admitted(page: Path) -> None:
    for block in FENCED.findall(page.read_text()):
        for document in yaml.safe_load_all(block):
            if document.get("kind") == "InferenceService":
                document["metadata"].setdefault("namespace", "default")
                assert admit(document) == []


@pytest.mark.parametrize("example", EXAMPLES, ids=name)
def test_an_example_renders(example: Path) -> None:
    done = CliRunner().invoke(app, ["render", "-f", str(example)])
    assert done.exit_code == 0, done.output
    kinds = {document["kind"] for document in yaml.safe_load_all(done.stdout)}
    assert {"Deployment", "Service", "ConfigMap", "NetworkPolicy"} <= kinds

"""The examples of the documentation as the operator would make them: files to read in review."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from operator_bodies import KNOWN, SITE
from steelyard.api.service import InferenceService
from steelyard.build.render import children
from steelyard.decide.accept import refusals
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

EXAMPLES = sorted((Path(__file__).parents[3] / "docs" / "examples").glob("*.yaml"))


class Manifest(SingleFileSnapshotExtension):
    """One YAML file an example."""

    _write_mode = WriteMode.TEXT
    file_extension = "yaml"


@pytest.fixture
def manifests(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    return snapshot.use_extension(Manifest)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path: Path, manifests: SnapshotAssertion) -> None:
    texts = []
    for body in yaml.safe_load_all(path.read_text()):
        if body["kind"] == "InferenceService":
            service = InferenceService.read(body)
            assert refusals(service, KNOWN) == ()
            texts.append(yaml.safe_dump_all(children(service, KNOWN, SITE), sort_keys=False, width=120))
    assert "---\n".join(texts) == manifests

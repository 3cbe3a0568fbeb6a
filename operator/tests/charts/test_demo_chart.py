"""The sample service of the demo chart is admitted and is the one that the docs show."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from offline_admission import admit
from rendering import one, rendered
from steelyard.api.service import InferenceService

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "given",
    [{}, {"topology": "Aggregated"}, {"engine": "simulated", "accelerator": "h200"}, {"decode": {"max": 4, "min": 4}}],
)
def test_sample_is_admitted(given: dict[str, Any]) -> None:
    (body,) = rendered("steelyard-demo", namespace="demo", **given)
    assert admit(body) == []


def test_sample_is_the_one_of_the_docs() -> None:
    shown = InferenceService.read(yaml.safe_load((ROOT / "docs" / "examples" / "smollm2.yaml").read_text()))
    made = InferenceService.read(one(rendered("steelyard-demo", namespace="demo"), "InferenceService"))
    assert made.spec.model_copy(update={"routing": shown.spec.routing}) == shown.spec
    assert made.name == shown.name

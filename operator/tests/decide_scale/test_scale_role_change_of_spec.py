"""Whether pods may change their role, as the spec says: judged for every kind of quantization, a Job's with resources too."""

from __future__ import annotations

from typing import Any

import pytest
from engine_bodies import BASES
from operator_bodies import merged, service
from steelyard.decide.scale.spec import scaled

JOB = {"weights": "int8", "source": "Job", "job": {"claim": "made", "resources": {"requests": {"cpu": "1"}}}}
CHECKPOINT = {"weights": "int8", "source": "Checkpoint"}


@pytest.mark.parametrize(
    ("change", "may", "because"),
    [
        ({}, True, "it is the default"),
        ({"autoscaling": {"roleChange": "Never"}}, False, "it is not allowed"),
        ({"quantization": JOB}, True, "both read what one Job makes"),
        ({"prefill": {"quantization": CHECKPOINT}}, False, "they hold other numbers"),
        ({"prefill": {"parallelism": {"tensor": 2}}}, False, "they are spread differently"),
    ],
)
def test_role_changes(change: dict[str, Any], may: bool, because: str) -> None:
    of = service(merged(BASES["vllm"], change))
    assert scaled(of, {}).limits.role_change is may, because

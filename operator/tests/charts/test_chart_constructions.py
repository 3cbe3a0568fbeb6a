"""Faults of other charts that ours cannot have, since the part they need is not there."""

from __future__ import annotations

import json

import pytest
from rendering import NAMES, RefusedError, rendered


@pytest.mark.parametrize("chart", NAMES)
def test_no_chart_makes_a_claim(chart: str) -> None:
    """An empty storage class is another thing than none (ai-dynamo/dynamo#1623, D18): claims are the users' own."""
    assert "PersistentVolumeClaim" not in {body["kind"] for body in rendered(chart)}
    if chart == "steelyard":
        with pytest.raises(RefusedError, match="storageClass"):
            rendered(chart, storageClass="")


@pytest.mark.parametrize("chart", NAMES)
def test_no_webhook_stands_in_the_way_of_any_write(chart: str) -> None:
    """A webhook's address assumed the default namespace, and not even a read worked (cert-manager/cert-manager#2752, D22)."""
    objects = rendered(chart, namespace="platform-llm", release="x")
    kinds = {body["kind"] for body in objects}
    assert not {kind for kind in kinds if "Webhook" in kind or kind == "APIService"}
    for body in objects:
        if body["kind"] == "CustomResourceDefinition":
            assert body["spec"].get("conversion", {"strategy": "None"})["strategy"] == "None"
    assert '"default.svc' not in json.dumps(objects)

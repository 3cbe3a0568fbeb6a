"""PodMonitors hold only fields that the kind has (prometheus-operator, monitoring.coreos.com/v1), of the right form.

Its API server drops what it does not know without a word, so a misspelt field would leave pods unscraped or unlabelled.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from rendering import rendered

DURATION = {
    "type": "string",
    "pattern": r"^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$",
}
STRINGS = {"type": "array", "items": {"type": "string"}}
LABEL = r"^(?:(?:[a-zA-Z_]|\$(?:\{\w+\}|\w+))\w*|\$(?:\{\w+\}|\w+))+$"


def record(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": list(required), "properties": properties}


RELABELING = record(
    sourceLabels={"type": "array", "items": {"type": "string", "pattern": r"^(([a-zA-Z_][a-zA-Z0-9_]*)|)$"}},
    targetLabel={"type": "string", "pattern": LABEL},
    separator={"type": "string"},
    regex={"type": "string"},
    replacement={"type": "string"},
    action={"enum": ["replace", "keep", "drop", "labelmap", "labeldrop", "labelkeep", "keepequal", "dropequal"]},
)
ENDPOINT = record(
    port={"type": "string"},
    path={"type": "string"},
    scheme={"enum": ["http", "https", "HTTP", "HTTPS"]},
    interval=DURATION,
    scrapeTimeout=DURATION,
    honorLabels={"type": "boolean"},
    relabelings={"type": "array", "items": RELABELING},
    metricRelabelings={"type": "array", "items": RELABELING},
)
SPEC = record(
    ("selector",),
    namespaceSelector=record(any={"type": "boolean"}, matchNames=STRINGS),
    selector=record(matchLabels={"type": "object", "additionalProperties": {"type": "string"}}),
    podMetricsEndpoints={"type": "array", "items": ENDPOINT, "minItems": 1},
)


@pytest.mark.parametrize("given", [{}, {"watchNamespaces": ["team-a"]}], ids=["all", "namespaced"])
def test_every_field_is_one_that_the_kind_has(given: dict[str, Any]) -> None:
    monitors = [
        o for o in rendered("steelyard", monitoring={"podMonitors": True}, **given) if o["kind"] == "PodMonitor"
    ]
    assert len(monitors) == 2
    for monitor in monitors:
        assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
        assert [error.message for error in Draft202012Validator(SPEC).iter_errors(monitor["spec"])] == []
        for endpoint in monitor["spec"]["podMetricsEndpoints"]:
            interval, timeout = (float(re.sub("s$", "", endpoint[name])) for name in ("interval", "scrapeTimeout"))
            assert timeout <= interval, "Prometheus refuses the whole configuration otherwise"


def test_the_labels_that_queries_group_by_are_set() -> None:
    """`namespace` and `pod` are set for every PodMonitor by the operator of Prometheus; `service` is ours to set."""
    for monitor in rendered("steelyard", monitoring={"podMonitors": True}):
        if monitor["kind"] != "PodMonitor":
            continue
        [endpoint] = monitor["spec"]["podMetricsEndpoints"]
        targets = {rule["targetLabel"]: rule["sourceLabels"] for rule in endpoint["relabelings"]}
        assert targets["service"] == ["__meta_kubernetes_pod_label_serving_steelyard_dev_service"]
        assert not {"role", "pool", "revision"} & targets.keys(), "each change of them would begin new series"

"""The children of typical services, as files to read in review: a change here rolls pods of every user."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from operator_bodies import KNOWN, SITE, service, simulated
from steelyard.build.render import children, revision
from syrupy.assertion import SnapshotAssertion

SERVICES: dict[str, dict[str, Any]] = {
    "smallest": {},
    "aggregated-from-a-claim": {
        "model": {"uri": "pvc://models/smollm2/q8.gguf", "servedName": "org/smollm2"},
        "topology": "Aggregated",
        "batching": {"strategy": "dynamic", "maxWait": "20ms", "maxSequences": 4},
        "aggregated": {"resources": {"requests": {"cpu": "250m", "memory": "512Mi"}, "limits": {"cpu": "2"}}},
        "routing": {"replicas": 1, "apiKeys": {"secretName": "keys"}, "requestTimeout": "30s"},
        "objectives": {"timeToFirstToken": "500ms"},
    },
    "simulated-with-a-template": simulated(
        {
            "decode": {
                "accelerator": "h100",
                "template": {
                    "metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}},
                    "spec": {
                        "nodeSelector": {"zone": "z1"},
                        "tolerations": [{"key": "gpu", "operator": "Exists"}],
                        "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}}],
                        "containers": [
                            {
                                "name": "engine",
                                "env": [{"name": "LEVEL", "value": "debug"}],
                                "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
                            },
                            {"name": "logs", "image": "logs:1", "args": ["-f"]},
                        ],
                    },
                },
            }
        }
    ),
}


@pytest.mark.parametrize("name", SERVICES)
def test_golden(name: str, snapshot: SnapshotAssertion) -> None:
    rendered = children(service(SERVICES[name]), KNOWN, SITE)
    assert yaml.safe_dump_all(rendered, sort_keys=False, width=120) == snapshot


def test_the_revision_is_named_by_its_content() -> None:
    rendered = children(service(), KNOWN, SITE)
    first, second = revision(service(), rendered, "h1", 1), revision(service(), rendered, "h2", 2)
    assert first["metadata"]["name"] == second["metadata"]["name"]
    assert first["data"]["children"] == rendered
    other = revision(service(), rendered[:-1], "h1", 1)
    assert other["metadata"]["name"] != first["metadata"]["name"]

"""A replica's accelerators and the nodes that have them: what is refused, with both numbers, and how many a pod asks for."""

from __future__ import annotations

from typing import Any

import pytest
from engine_bodies import BASES
from operator_bodies import KNOWN, SITE, merged, service
from steelyard.api.reasons import Reason
from steelyard.build.engines import choose
from steelyard.build.render import children
from steelyard.decide.accept import refusals

CASES: list[tuple[str, dict[str, Any], set[Reason], int]] = [
    ("one node holds it", {"tensor": 8}, set(), 8),
    ("two nodes (kserve/kserve#4226, C12)", {"tensor": 16}, set(), 8),
    ("they do not share evenly", {"tensor": 4, "pipeline": 3}, {Reason.INVALID_SPEC}, 6),
]


@pytest.mark.parametrize(("ways", "reasons", "a_pod"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_replica_over_nodes(ways: dict[str, int], reasons: set[Reason], a_pod: int) -> None:
    of = service(merged(BASES["vllm"], {"parallelism": ways}))
    found = [one for one in refusals(of, KNOWN) if one.field.endswith("parallelism")]
    assert {one.reason for one in found} == reasons
    assert all("8" in one.problem for one in found)
    parts = choose.parts(of, "decode", KNOWN["h200"], SITE)
    assert parts.accelerators == a_pod, "a pod never asks for more accelerators than a node has"


def test_followers_compute_and_serve_nothing() -> None:
    of = service(merged(BASES["vllm"], {"decode": {"parallelism": {"tensor": 16}}}))
    group = next(child for child in children(of, KNOWN, SITE) if child["kind"] == "LeaderWorkerSet")
    assert "replicas" not in group["spec"]
    template = group["spec"]["leaderWorkerTemplate"]
    assert template["size"] == 2
    leader, follower = template["leaderTemplate"], template["workerTemplate"]
    labels = follower["metadata"]["labels"]
    assert not {"serving.steelyard.dev/role", "serving.steelyard.dev/pool"} & set(labels), (
        "no gateway may send it requests"
    )
    assert labels["app.kubernetes.io/component"] == "engine-follower"
    engine = follower["spec"]["containers"][0]
    assert not {"readinessProbe", "startupProbe", "livenessProbe", "ports"} & set(engine)
    assert "--headless" in engine["args"]
    assert "--headless" not in leader["spec"]["containers"][0]["args"]
    for pod in (leader, follower):
        assert pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "8"


def test_peers_reach_each_other_on_ports_chosen_at_run_time() -> None:
    of = service(merged(BASES["vllm"], {"decode": {"parallelism": {"tensor": 16}}}))
    policy = next(child for child in children(of, KNOWN, SITE) if child["metadata"]["name"] == "chat-engine-kv")
    (rule,) = policy["spec"]["ingress"]
    assert "ports" not in rule
    components = [peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for peer in rule["from"]]
    assert components == ["engine", "engine-follower"]

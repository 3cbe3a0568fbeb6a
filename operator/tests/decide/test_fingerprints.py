"""Hashes that decide over roll-outs: what must change them, and what must not."""

from __future__ import annotations

from typing import Any

import pytest
from engine_bodies import BASES, rendered
from operator_bodies import merged, service
from steelyard.decide.fingerprint import kv_group, spec_hash

BASE = service({"decode": {"replicas": {"min": 1, "max": 2}}})


@pytest.mark.parametrize(
    ("change", "same", "because"),
    [
        ({"decode": {"replicas": {"min": 2, "max": 9}}}, True, "bounds reach no child"),
        ({"autoscaling": {"mode": "Off"}}, True, "the mode reaches no child"),
        ({"autoscaling": {"roleChange": "Never"}}, True, "engines of ours are not told their role"),
        ({"autoscaling": {"roleChange": "Allowed", "mode": "Off"}}, True, "a default, and no child's"),
        ({"prefill": {}}, True, "an empty block says what its absence says"),
        ({"topology": "Disaggregated"}, True, "a written default is a default"),
        ({"model": {"contextLength": 4096}}, False, "the engines' arguments"),
        ({"objectives": {"timeToFirstToken": "1s"}}, False, "the gateway's settings"),
        ({"decode": {"resources": {"limits": {"cpu": "2"}}}}, False, "the pods' resources"),
    ],
)
def test_the_spec_hash(change: dict[str, Any], same: bool, because: str) -> None:
    changed = service({"decode": {"replicas": {"min": 1, "max": 2}}, **change})
    assert (spec_hash(changed) == spec_hash(BASE)) is same, because


@pytest.mark.parametrize("engine", BASES)
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"topology": "Aggregated"},
        {"cache": {"offload": {"kind": "lmcache", "memory": "8Gi", "address": "store:5000"}}},
        {
            "transfer": {"connector": "lmcache"},
            "cache": {"offload": {"kind": "lmcache", "memory": "8Gi", "address": "store:5000"}},
        },
    ],
    ids=["plain", "aggregated", "a store too", "by a store"],
)
def test_a_fixed_role_rolls_those_pods_only_that_are_told_of_it(engine: str, change: dict[str, Any]) -> None:
    before = merged(BASES[engine], change)
    after = merged(before, {"autoscaling": {"roleChange": "Never"}})
    assert (spec_hash(service(after)) == spec_hash(service(before))) is (rendered(after) == rendered(before))


def test_the_wish_for_a_new_rendering_changes_it() -> None:
    assert spec_hash(BASE, "again") != spec_hash(BASE)


@pytest.mark.parametrize(
    ("change", "image", "same"),
    [
        ({}, "engine:1", True),
        ({"decode": {"resources": {"limits": {"cpu": "2"}}}}, "engine:1", True),
        ({}, "engine:2", False),
        ({"model": {"uri": "oci://steelyard/other:1"}}, "engine:1", False),
        ({"model": {"contextLength": 4096}}, "engine:1", False),
    ],
)
def test_engines_that_can_exchange_kv_state(change: dict[str, Any], image: str, same: bool) -> None:
    assert (kv_group(service(change), image) == kv_group(service(), "engine:1")) is same

"""Hashes that decide over roll-outs: what must change them, and what must not."""

from __future__ import annotations

from typing import Any

import pytest
from operator_bodies import service
from steelyard.decide.fingerprint import kv_group, spec_hash

BASE = service({"decode": {"replicas": {"min": 1, "max": 2}}})


@pytest.mark.parametrize(
    ("change", "same", "because"),
    [
        ({"decode": {"replicas": {"min": 2, "max": 9}}}, True, "bounds reach no child"),
        ({"autoscaling": {"mode": "Off"}}, True, "the mode reaches no child"),
        ({"autoscaling": {"roleChange": "Never"}}, False, "engines are told their role where it is fixed"),
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

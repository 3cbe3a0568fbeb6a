"""Who writes how many replicas: the table, and the law that the bounds hold for any input."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from operator_bodies import service
from steelyard.api.roles import Replicas
from steelyard.decide.replicas import GATEWAY_POOL, Mode, scales, wanted
from steelyard.decide.snapshot import Deployment

BOUNDS = Replicas(min=2, max=6, initial=3)


@pytest.mark.parametrize(
    ("mode", "runs", "written", "write", "because"),
    [
        ("Auto", 1, False, 3, "initial at creation"),
        ("Off", 1, False, 3, "initial at creation in every mode"),
        ("Recommend", 1, False, 3, "initial at creation in every mode"),
        ("Auto", 3, False, 3, "it runs already, and the write makes us its owner"),
        ("Auto", 1, True, 2, "below min"),
        ("Auto", 9, True, 6, "above max"),
        ("Auto", 4, True, None, "within the bounds"),
        ("Off", 9, True, None, "anybody's autoscaler rules"),
        ("Recommend", 1, True, None, "it changes nothing"),
    ],
)
def test_the_table(mode: Mode, runs: int, written: bool, write: int | None, because: str) -> None:
    assert wanted(BOUNDS, mode, runs, written) == write, because


def test_with_an_autoscaler_a_pool_may_hold_more_than_its_roles_maximum() -> None:
    """Limits are of roles: after role changes some of a pool's replicas do the other's work."""
    assert wanted(BOUNDS, "Auto", 9, True, autoscaled=True) is None
    assert wanted(BOUNDS, "Auto", 1, False, autoscaled=True) == 3


@given(st.integers(1, 50), st.integers(0, 50), st.integers(0, 100), st.sampled_from(["Auto", "Off", "Recommend"]))
def test_what_is_written_is_within_the_bounds_and_written_once(low: int, more: int, runs: int, mode: Mode) -> None:
    bounds = Replicas(min=low, max=low + more)
    number = wanted(bounds, mode, runs, True)
    if number is not None:
        assert bounds.min <= number <= bounds.limit
        assert number != runs
        assert wanted(bounds, mode, number, True) is None
    elif mode == "Auto":
        assert bounds.min <= runs <= bounds.limit


def seen(pool: str, replicas: int, written: bool = True) -> Deployment:
    name = f"chat-{pool}" if pool else "chat"
    return Deployment(name, pool, replicas, written, ready=0, updated=0, observed=True, revision="")


def test_a_clamp_of_one_pool_never_grows_another() -> None:
    """A clamp to a budget grew a role in a comparable system (A08)."""
    spec = {"prefill": {"replicas": {"min": 1, "max": 2}}, "decode": {"replicas": {"min": 1, "max": 8}}}
    pools = {pool: seen(pool, number) for pool, number in (("prefill", 5), ("decode", 3), (GATEWAY_POOL, 2))}
    found = scales(service(spec), pools)
    assert [(scale.pool, scale.before, scale.replicas) for scale in found] == [("prefill", 5, 2)]


@pytest.mark.parametrize("mode", ["Auto", "Off", "Recommend"])
def test_gateways_follow_the_spec_in_every_mode(mode: str) -> None:
    spec = {"autoscaling": {"mode": mode}, "routing": {"replicas": 3}}
    pools = {pool: seen(pool, number) for pool, number in (("prefill", 1), ("decode", 1), (GATEWAY_POOL, 1))}
    assert [(scale.pool, scale.replicas) for scale in scales(service(spec), pools)] == [(GATEWAY_POOL, 3)]

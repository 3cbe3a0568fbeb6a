"""The simulator held to a real cluster: one load, services of one size, with and without our autoscaler.

`e2e/data/mix.json` says what was played and what clients saw; `e2e/scenarios/test_autoscaler_mix.py` plays it again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from steelyard.api.accelerator import Accelerator
from steelyard.decide.plan import read
from steelyard.sim import spec
from steelyard.sim.policies.choose import replicas
from steelyard.sim.policies.law import Law
from steelyard.sim.policies.policy import Static
from steelyard.sim.requests import Arrival
from steelyard.sim.run import simulate

MIX: dict[str, Any] = json.loads((Path(__file__).parents[3] / "e2e" / "data" / "mix.json").read_text())
AGREED = 0.03  # of attainment


def arrivals() -> Iterator[Arrival]:
    for at, prompt, answer in MIX["trace"]:
        yield Arrival(at, prompt, answer)


def attained(ratio: str) -> float:
    bounds = {role: {"replicas": {"min": 1, "max": MIX["size"] - 1}} for role in ("prefill", "decode")}
    budget = {"autoscaling": {"budget": {"accelerators": MIX["size"]}}}
    body = {
        "apiVersion": "serving.steelyard.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": "mix", "namespace": "default"},
        "spec": {**MIX["spec"], **bounds, **budget},
    }
    service, refusals = read(body)
    assert service is not None, refusals
    accelerator = Accelerator.read(MIX["accelerator"])
    scenario, asked = spec.of_service(service, {accelerator.name: accelerator})
    scenario = replace(scenario, initial=replicas(MIX["start"] if ratio == "auto" else ratio))
    return simulate(scenario, arrivals(), Law(asked) if ratio == "auto" else Static()).attainment


@pytest.mark.parametrize("ratio", ["auto", *MIX["rivals"]])
def test_attainment_agrees_with_what_clients_of_the_cluster_saw(ratio: str) -> None:
    assert attained(ratio) == pytest.approx(MIX["measured"][ratio]["attainment"], abs=AGREED)


def test_the_static_ratios_that_were_not_played_could_not_have_been_the_best() -> None:
    """The simulator that agrees on the others gives them far less."""
    played = max(one["attainment"] for ratio, one in MIX["measured"].items() if ratio != "auto")
    others = {f"{prefill}:{MIX['size'] - prefill}" for prefill in range(1, MIX["size"])} - set(MIX["rivals"])
    assert others
    assert all(attained(ratio) < played - 3 * AGREED for ratio in others)

"""The simulator held to a real cluster: one load, services of one size, with and without our autoscaler.

`e2e/data/mix.json` says what was played and what clients saw, run by run; `e2e/scenarios/test_autoscaler_mix.py` plays it
again. Under overload a little decides who is still in time: engines that are 3 % slower lose the ratio 3:3 four points, and a
machine that starves its pods adds as much between passes. Every run therefore tells how long its prompts took, and the
simulator is held to those runs whose engines kept their time; what another one saw is kept beside them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from steelyard.api.accelerator import Accelerator
from steelyard.decide.plan import read
from steelyard.sim import spec
from steelyard.sim.policies.choose import replicas
from steelyard.sim.policies.law import Law
from steelyard.sim.policies.policy import Policy, Static
from steelyard.sim.requests import Arrival
from steelyard.sim.run import simulate
from steelyard.sim.scenario import Scenario

MIX: dict[str, Any] = json.loads((Path(__file__).parents[3] / "e2e" / "data" / "mix.json").read_text())
RUNS: list[dict[str, Any]] = MIX["runs"]
RATIOS = ("auto", *MIX["rivals"])
AGREED = 0.03  # of attainment
IN_TIME = 1.01  # times the passes that the profile asks for


def arrivals() -> Iterator[Arrival]:
    for at, prompt, answer in MIX["trace"]:
        yield Arrival(at, prompt, answer)


def world(ratio: str) -> tuple[Scenario, Policy]:
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
    return scenario, Law(asked) if ratio == "auto" else Static()


def attained(ratio: str) -> float:
    scenario, policy = world(ratio)
    return simulate(scenario, arrivals(), policy).attainment


def pace(run: dict[str, Any]) -> float | None:
    """How much longer prompts took than their profile asks; None: nobody measured it."""
    if "prefillSeconds" not in run:
        return None
    fixed, linear, square = world(MIX["start"])[0].engine.prefill
    asked = fmean(fixed + linear * n + square * n * n for _, n, _ in MIX["trace"])
    return fmean(run["prefillSeconds"].values()) / asked


KEPT = [run for run in RUNS if (pace(run) or 1.0) <= IN_TIME]


@pytest.mark.parametrize("ratio", RATIOS)
def test_attainment_agrees_with_what_clients_of_the_cluster_saw(ratio: str) -> None:
    simulated = attained(ratio)
    seen = [run["measured"][ratio]["attainment"] for run in KEPT]
    assert len(seen) >= 3
    assert seen == pytest.approx([simulated] * len(seen), abs=AGREED)
    assert fmean(seen) == pytest.approx(simulated, abs=AGREED / 2)


def test_where_engines_are_late_the_cluster_does_worse_than_the_simulator_and_not_better() -> None:
    late = [run for run in RUNS if run not in KEPT]
    assert late
    for run in late:
        assert all(run["measured"][ratio]["attainment"] < attained(ratio) + AGREED for ratio in RATIOS)


def test_the_static_ratios_that_were_not_played_could_not_have_been_the_best() -> None:
    """The simulator that agrees on the others gives them far less."""
    played = max(run["measured"][ratio]["attainment"] for run in KEPT for ratio in MIX["rivals"])
    others = {f"{prefill}:{MIX['size'] - prefill}" for prefill in range(1, MIX["size"])} - set(MIX["rivals"])
    assert others
    assert all(attained(ratio) < played - 3 * AGREED for ratio in others)

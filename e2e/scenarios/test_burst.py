"""The demo's burst: autoscaled, at the minimum and at the size of hindsight, side by side under one load."""

from __future__ import annotations

import json
import sys
from dataclasses import fields, replace

import pytest
from rich.console import Console

from e2e import monitoring
from e2e.demo.burst.account import Figures
from e2e.demo.burst.fleet import BUDGET
from e2e.demo.burst.load import PHASES
from e2e.demo.burst.play import AUTO, HINDSIGHT, OFF, PAGE, RESULT, play
from e2e.platform import Platform

pytestmark = pytest.mark.cluster

SHORTENED = (*PHASES[:-1], replace(PHASES[-1], seconds=30.0))  # without the minutes in which nothing happens


@pytest.mark.timeout(1500)
def test_a_burst_is_followed(platform: Platform) -> None:
    try:
        played = play(platform, Console(file=sys.__stderr__), print, SHORTENED)
    finally:
        monitoring.disconnect_operator(platform)
    auto, off, hindsight = (played.figures[name] for name in (AUTO, OFF, HINDSIGHT))
    assert auto.requests == off.requests == hindsight.requests
    assert [one.failed for one in (auto, off, hindsight)] == [0, 0, 0]
    assert auto.attainment > off.attainment + 0.1
    whole = sum(phase.seconds for phase in SHORTENED) / 3600
    assert off.accelerator_hours < auto.accelerator_hours < BUDGET * whole, (
        "it grew, and not at once to all it may have"
    )
    assert auto.replica_changes >= 1
    assert auto.ratio_changes >= 1
    assert (off.replica_changes, hindsight.replica_changes) == (0, 0)
    written = json.loads(RESULT.read_text())
    assert {name: set(one) for name, one in written.items()} == {
        name: {field.name for field in fields(Figures)} for name in (AUTO, OFF, HINDSIGHT)
    }
    assert PAGE.read_text().count("<svg") >= 6

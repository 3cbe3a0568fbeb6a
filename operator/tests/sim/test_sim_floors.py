"""The floors of the autoscaler that one run can show in seconds; `make evidence` has all of them, over several draws."""

from statistics import mean

import pytest
from bench.evidence import floors
from bench.evidence.settings import MOVING, TRACES

NAMED = {setting.name: setting for setting in (*TRACES, *MOVING)}


@pytest.mark.parametrize(
    ("name", "seeds", "attainment", "hours", "because"),
    [
        ("azure-code ×10", (0,), 0.95, 0.65, "bursts of seconds: fewer hours than the exploration took"),
        ("servegen r1 ×24", (0,), 0.95, 5.9, "long answers build up for minutes: decode is sized for when a replica is ready"),
        ("alt60 scaled", (2, 3, 4), 0.98, 3.8, "the mix turns every minute: what comes back is kept for it"),
        ("alt150 scaled", (2, 3, 4), 0.98, 4.2, "the mix turns slower than a start takes"),
    ],
)  # fmt: skip
def test_the_law_reaches_its_floor(name, seeds, attainment, hours, because):
    results = [floors.ours(NAMED[name], seed) for seed in seeds]
    assert mean(result.attainment for result in results) >= attainment, because
    assert mean(result.accelerator_hours for result in results) <= hours, because


def test_five_fixed_replicas_behind_the_gateway():
    assert floors.five_fixed()["ok"]

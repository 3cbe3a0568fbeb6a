"""The floors of the autoscaler that one run can show in seconds; `make evidence` has all of them, over several draws."""

import pytest
from bench.evidence import floors
from bench.evidence.settings import MOVING, TRACES

NAMED = {setting.name: setting for setting in (*TRACES, *MOVING)}


@pytest.mark.parametrize(
    ("name", "seed", "attainment", "hours", "because"),
    [
        ("azure-code ×10", 0, 0.95, 0.70, "bursts of seconds: as many hours as the exploration took"),
        ("servegen r1 ×24", 0, 0.95, 6.3, "long answers build up for minutes: decode is sized for when a replica is ready"),
        ("alt60 scaled", 3, 0.98, 3.9, "the mix turns every minute: a start that is late is not paid for twice"),
        ("alt150 scaled", 2, 0.98, 4.2, "the mix turns slower than a start takes"),
    ],
)  # fmt: skip
def test_the_law_reaches_its_floor(name, seed, attainment, hours, because):
    result = floors.ours(NAMED[name], seed)
    assert result.attainment >= attainment, because
    assert result.accelerator_hours <= hours, because


def test_five_fixed_replicas_behind_the_gateway():
    assert floors.five_fixed()["ok"]

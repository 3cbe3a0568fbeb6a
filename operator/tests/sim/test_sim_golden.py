"""Other people's simulators, reproduced cell by cell: Dynamo 1.4.2's replay and DistServe's own."""

from math import sqrt

import pytest
from bench.evidence import data, distserve, dynamo


@pytest.mark.parametrize(("prefill", "decode"), list(dynamo.GOLDEN), ids=lambda n: str(n))
def test_dynamo_static_ratio(prefill, decode):
    attainment, hours = dynamo.GOLDEN[prefill, decode]
    ours = dynamo.replay(prefill, decode)
    assert ours.record.arrived == ours.record.completed == 8819
    assert ours.attainment == pytest.approx(attainment, abs=dynamo.TOLERANCE)
    assert ours.accelerator_hours == pytest.approx(hours, abs=0.001)


def test_without_the_artefact_the_same_replicas_do_much_better():
    assert dynamo.replay(5, 1, artefact=False).attainment > dynamo.replay(5, 1).attainment + 0.2


# The decode side's cells are the slowest to compute: 7:1 and 6:2 stand for it at two rates.
CELLS = [
    row
    for row in data.table("distserve-ratio-sweep.csv")
    if row["rate_rps"] == "16" or (row["P"] in "1267" and row["rate_rps"] == "8") or row["P"] == row["D"]
]


@pytest.mark.parametrize("row", CELLS, ids=lambda row: f"{row['P']}:{row['D']} at {row['rate_rps']}/s")
def test_distserve_cell(row):
    golden = float(row["both_att"])
    ttft, tpot, both = distserve.attained(int(row["P"]), int(row["D"]), float(row["rate_rps"]))
    allowed = max(2 * sqrt(golden * (1 - golden) / distserve.REQUESTS), 1 / distserve.REQUESTS)
    assert abs(both - golden) <= allowed
    assert ttft == pytest.approx(float(row["ttft_att"]), abs=allowed)
    assert tpot == pytest.approx(float(row["tpot_att"]), abs=allowed)


def test_the_best_ratio_of_the_sweep_is_even():
    neighbours = {(prefill, 8 - prefill): distserve.attained(prefill, 8 - prefill, 16.0)[2] for prefill in (3, 4, 5)}
    assert max(neighbours, key=lambda ratio: neighbours[ratio]) == (4, 4)

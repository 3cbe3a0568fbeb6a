"""The measured deployments that the roofline is judged by: none beats the bound, and the factors in use are the rows' own."""

from __future__ import annotations

import pytest
from bench.evidence import silicon
from bench.evidence.silicon import Anchor
from steelyard.decide.model.calibration import FITTED
from steelyard.decide.model.roofline import Factors

ROWS = silicon.anchors()


def test_all_rows_are_read() -> None:
    assert len(ROWS) == 35
    assert sum(not row.aggregated for row in ROWS) == 12


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_no_measurement_beats_the_bound(row: Anchor) -> None:
    ttft, tpot = silicon.bound(row)
    assert 0 < ttft <= row.ttft
    assert 0 < tpot <= row.tpot


def test_the_fit_is_better_than_published_factors_and_near_its_own_optimum() -> None:
    own = silicon.loss(ROWS, FITTED)
    assert own < 0.7 * silicon.loss(ROWS, Factors())
    for changed in ("bandwidth", "layer_seconds", "collective_seconds"):
        for factor in (0.7, 1.0 / 0.7):
            value = min(1.0, getattr(FITTED, changed) * factor)
            other = Factors(**{**_fields(FITTED), changed: value})
            assert silicon.loss(ROWS, other) > own * 0.98, changed


def _fields(factors: Factors) -> dict[str, float]:
    return {name: getattr(factors, name) for name in Factors.__dataclass_fields__}

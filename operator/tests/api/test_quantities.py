"""Durations and quantities: what Kubernetes accepts is accepted with its value, everything else is refused with a remedy."""

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from steelyard.api.quantities import Duration, Quantity


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("1.5s", 1.5),
        ("5m", 300),
        ("1h30m", 5400),
        ("1m0.5s", 60.5),
        ("250us", 0.00025),
        ("250µs", 0.00025),
        ("7ns", 7e-9),
        ("8", 8),
        (8, 8),
        ("0.05", 0.05),
    ],
)
def test_duration_seconds(text: str | int, seconds: float) -> None:
    assert Duration(text).seconds == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(
    "text", ["", "s", "5 m", "-5s", "5d", "1.s", ".5s", "5s ", "1e3", "5m\n", True, None, 0.5, -1, "9" * 33]
)
def test_no_duration(text: object) -> None:
    with pytest.raises(ValueError, match="write a number with a unit"):
        Duration(text)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8", 8),
        (8, 8),
        ("4Mi", 4 * 2**20),
        ("4M", 4_000_000),
        ("500m", Decimal("0.5")),
        ("1.5Gi", 1610612736),
        ("1e3", 1000),
        ("2E", 2 * 10**18),
        ("2E2", 200),
        ("100n", Decimal("1e-7")),
        ("0.25", Decimal("0.25")),
    ],
)
def test_quantity_value(text: str | int, value: Decimal | int) -> None:
    assert Quantity(text).value == value


@pytest.mark.parametrize("text", ["", "Mi", "-1", "4MB", "4mi", "1.5.2", "4 Gi", "4K", True, 0.5, -1, []])
def test_no_quantity(text: object) -> None:
    with pytest.raises(ValueError, match="write a number with an optional scale"):
        Quantity(text)  # type: ignore[arg-type]


def test_whole_and_milli_round_up() -> None:
    assert Quantity("100m").whole == 1
    assert Quantity("0.0001").milli == 1
    assert Quantity("250m").milli == 250


@settings(deadline=None)
@given(
    st.integers(0, 10**9),
    st.sampled_from(["n", "u", "m", "", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]),
)
def test_scales_grow_and_spelling_stays(number: int, scale: str) -> None:
    quantity = Quantity(f"{number}{scale}")
    assert quantity == f"{number}{scale}"
    assert quantity.milli >= quantity.whole - 1
    assert quantity.value >= 0


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 999))
def test_parts_of_a_duration_add_up(seconds: int, milliseconds: int) -> None:
    assert Duration(f"{seconds}s{milliseconds}ms").seconds == pytest.approx(seconds + milliseconds / 1000)

"""What the autoscaler tells the gateways: read back as written, and followed only where it has really moved."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from steelyard.decide import slots


@given(st.integers(1, 10_000))
def test_what_is_written_is_read(number: int) -> None:
    assert slots.read(slots.text(number)) == number
    assert not slots.moved(number, number, held=number)
    assert slots.moved(None, number, held=0)


@pytest.mark.parametrize(
    "content", [None, "", "{", "[]", "7", '{"decodeSlots": 0}', '{"decodeSlots": true}', '{"decodeSlots": 2.5}', "{}"]
)
def test_anything_else_is_no_number(content: str | None) -> None:
    assert slots.read(content) is None


@pytest.mark.parametrize(
    ("told", "wanted", "held", "moved", "because"),
    [
        (100, 110, 90, False, "a tenth is noise"),
        (100, 111, 90, True, "more than a tenth"),
        (100, 89, 90, True, "in both directions"),
        (6, 5, 4, True, "of few sequences one is much"),
        (100, 40, 10, False, "no replica is anywhere near the limit"),
        (100, 40, 20, True, "one will soon be past it"),
    ],
)
def test_small_changes_are_left_for_later(told: int, wanted: int, held: float, moved: bool, because: str) -> None:
    assert slots.moved(told, wanted, held) is moved, because

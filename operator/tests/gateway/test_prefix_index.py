"""Who holds a prompt's beginning: every index behind one interface, and the laws of the one that goes by what was sent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from steelyard.gateway.affinity import BLOCK, MAX_BLOCKS, NOTHING, Beginning, NoPrefixes, Prefixes, PrefixTable, index

A, B = b"a" * BLOCK, b"b" * BLOCK


def sent(table: Prefixes, *prompts: tuple[bytes, str]) -> None:
    for prompt, replica in prompts:
        table.sent(table.find(prompt, ("p", "q")), replica)


@pytest.mark.parametrize(
    ("before", "prompt", "there", "replica", "held", "because"),
    [
        ([], A, "pq", None, 0, "nothing was sent yet"),
        ([(A + B, "p")], A + B, "pq", "p", 2 * BLOCK, "the whole prompt"),
        ([(A + B, "p")], A + A, "pq", "p", BLOCK, "its first block"),
        ([(A + B, "p")], B + B, "pq", None, 0, "the same block after another beginning is another block"),
        ([(A + b"short", "p")], A + b"other", "pq", "p", BLOCK, "what is left of a block does not count"),
        ([(b"short", "p")], b"short", "pq", None, 0, "less than a block is not worth remembering"),
        ([(A, "p"), (A + B, "q")], A + A, "pq", "q", BLOCK, "the one that computed it last"),
        ([(A + B, "p"), (A, "q")], A + B, "pq", "p", 2 * BLOCK, "the longest beginning wins"),
        ([(A + B, "p")], A + B, "q", None, 0, "a replica that has left took its cache along"),
        ([(A, "q"), (A + B, "p")], A + B, "q", None, 0, "and what it computed last is known of nobody else"),
        ([(A * MAX_BLOCKS + A, "p")], A * MAX_BLOCKS + A, "pq", "p", MAX_BLOCKS * BLOCK, "no more than is remembered"),
    ],
)
def test_the_longest_beginning_that_a_replica_holds(
    before: list[tuple[bytes, str]], prompt: bytes, there: str, replica: str | None, held: int, because: str
) -> None:
    table = PrefixTable()
    sent(table, *before)
    found = table.find(prompt, tuple(there))
    assert (found.replica, found.held) == (replica, held), because


def test_an_adapter_holds_beginnings_of_its_own() -> None:
    table = PrefixTable()
    table.sent(table.find(A + B, "pq", "legal"), "p")
    found = [table.find(A + B, "pq", model).replica for model in ("legal", "medical", "the model itself")]
    assert found == ["p", None, None]


PROMPTS = st.lists(st.sampled_from((A, B, b"c" * BLOCK)), max_size=5).map(b"".join)


@given(st.lists(st.tuples(PROMPTS, st.sampled_from(("p", "q"))), max_size=12), PROMPTS)
def test_what_is_found_was_sent_there(before: list[tuple[bytes, str]], prompt: bytes) -> None:
    table = PrefixTable()
    sent(table, *before)
    found = table.find(prompt, ("p", "q"))
    assert found.held <= len(prompt)
    if found.held:
        assert any(one[: found.held] == prompt[: found.held] and replica == found.replica for one, replica in before)
    else:
        assert not any(one[:BLOCK] == prompt[:BLOCK] != b"" for one, _ in before)


def test_the_least_recent_beginnings_are_forgotten() -> None:
    table = PrefixTable(capacity=3)
    for number in range(10):
        sent(table, (bytes([number]) * BLOCK, "p"))
        assert len(table) <= 3
    assert table.find(bytes([0]) * BLOCK, "p").replica is None
    assert table.find(bytes([9]) * BLOCK, "p").replica == "p"


def test_without_affinity_nobody_holds_anything() -> None:
    none = NoPrefixes()
    sent(none, (A, "p"))
    assert none.find(A, "p") == NOTHING == Beginning((), None, 0)


@pytest.mark.parametrize(("affinity", "kind"), [("prefix", PrefixTable), ("none", NoPrefixes)])
def test_an_index_for_every_setting(affinity: str, kind: type) -> None:
    assert isinstance(index(affinity), kind)


def test_other_settings_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="kvEvents"):
        index("kvEvents")

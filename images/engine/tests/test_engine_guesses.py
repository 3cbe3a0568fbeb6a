"""Guesses from a sequence's own tokens, and those of the simulated engine."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from steelyard_engine.backends.simulated import Oracle, following
from steelyard_engine.guesses import Lookup
from steelyard_engine.steps import Sequence

LOOKUPS = [
    # tokens, longest run, guesses, because
    ([1, 2, 3, 4, 1, 2], 4, [3, 4, 1], "what followed 1 2"),
    ([1, 2, 3, 1, 2, 4, 1, 2], 4, [4, 1, 2], "the latest place counts"),
    ([9, 1, 2, 3, 8, 1, 2, 7, 9, 1, 2], 3, [3, 8, 1], "a longer run goes before a later one"),
    ([9, 1, 2, 3, 8, 1, 2, 7, 9, 1, 2], 2, [7, 9, 1], "unless it is longer than asked for"),
    ([1, 2, 3, 4], 4, [], "nothing stood there before"),
    ([5, 6, 7, 5], 4, [], "a single token is not enough"),
    ([1, 1, 1], 4, [1], "no more than what is there"),
    ([3], 4, [], "too short to repeat anything"),
]


@pytest.mark.parametrize(("tokens", "longest", "guesses", "because"), LOOKUPS)
def test_lookup(tokens: list[int], longest: int, guesses: list[int], because: str) -> None:
    sequence = Sequence(1, tuple(tokens), 8, 0.0)
    assert Lookup(3, longest).propose([sequence]).get(1, []) == guesses, because


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(1, 6), st.integers(1, 5), st.integers(1, 39))
def test_taking_tokens_in_one_by_one_or_at_once_is_the_same(
    tokens: list[int], count: int, longest: int, first: int
) -> None:
    at_once, growing = Lookup(count, longest), Lookup(count, longest)
    sequence = Sequence(1, tuple(tokens[:first]), 99, 0.0)
    found = growing.propose([sequence])
    for token in tokens[first:]:
        sequence.tokens.append(token)
        found = growing.propose([sequence])
    assert found == at_once.propose([Sequence(1, tuple(sequence.tokens), 99, 0.0)])
    growing.forget([])
    assert growing.propose([sequence]) == found, "forgotten, and found again"


@pytest.mark.parametrize(("acceptance", "right"), [(0.0, 0), (1.0, 400)])
def test_the_simulated_engines_guesses_are_as_good_as_its_profile_says(acceptance: float, right: int) -> None:
    assert _right(acceptance) == right


def test_in_between_they_are_right_about_as_often() -> None:
    assert 180 < _right(0.6) < 300


def _right(acceptance: float) -> int:
    """Of 400 guesses, each at the first place behind a sequence of its own."""
    sequences = [Sequence(number, (number, number + 1), 8, 0.0) for number in range(400)]
    found = Oracle(1, acceptance).propose(sequences)
    return sum(found[one.id] == [following(one.tokens[-1], len(one.tokens))] for one in sequences)

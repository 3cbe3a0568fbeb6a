"""Text leaves only in whole characters and never as part of a stop string; sampling is what it claims to be."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from steelyard_engine.sampling import Sampling, choose
from steelyard_engine.text import TextStream

STOPS = [
    # pieces, stops, what each push gives, what closing gives, stopped
    (["ab", "cd"], [], ["ab", "cd"], "", False),
    (["a", "b\n", "\nc"], ["\n\n"], ["a", "b", ""], "", True),
    (["a\n", "b"], ["\n\n"], ["a", "\nb"], "", False),
    (["a\n"], ["\n\n"], ["a"], "\n", False),
    (["xEN", "ENDy"], ["END"], ["x", "EN"], "", True),
    (["one two"], ["two", "one"], [""], "", True),
    (["aab"], ["ab"], ["a"], "", True),
]


@pytest.mark.parametrize(("pieces", "stops", "given_out", "rest", "stopped"), STOPS)
def test_stop_strings(pieces: list[str], stops: list[str], given_out: list[str], rest: str, stopped: bool):
    stream = TextStream(stops)
    assert [stream.push(piece.encode()) for piece in pieces] == given_out
    assert stream.close() == rest
    assert stream.stopped is stopped


def test_a_character_cut_by_tokens_comes_whole_or_as_a_mark():
    data = "é→".encode()
    stream = TextStream()
    assert [stream.push(data[i : i + 1]) for i in range(len(data))] == ["", "é", "", "", "→"]
    assert TextStream().close() == ""
    stream = TextStream()
    assert stream.push(data[:1]) == ""
    assert stream.close() == "�"


@given(st.text("ab\né", max_size=30), st.lists(st.text("ab\n", min_size=1, max_size=3), max_size=3), st.data())
def test_any_cutting_of_the_bytes_gives_the_text_before_the_first_stop(
    text: str, stops: list[str], data: st.DataObject
):
    encoded, pieces = text.encode(), []
    while encoded:
        size = data.draw(st.integers(1, len(encoded)))
        pieces.append(encoded[:size])
        encoded = encoded[size:]
    stream, parts = TextStream(stops), []
    for piece in pieces:
        parts.append(stream.push(piece))
        if stream.stopped:
            break
    parts.append(stream.close())
    # A stop ends the answer with the token in which it is complete; of several in one token the leftmost counts.
    ends = [place + len(stop) for stop in stops if (place := text.find(stop)) >= 0]
    assert stream.stopped is bool(ends)
    if not ends:
        assert "".join(parts) == text
    else:
        assert text.startswith("".join(parts))
        assert not any(stop in "".join(parts) for stop in stops)


LOGITS = np.log(np.array([0.1, 0.4, 0.2, 0.3], np.float32))


def draws(sampling: Sampling, count: int = 400) -> np.ndarray:
    tokens = [choose(LOGITS, sampling, index, ()) for index in range(count)]
    return np.bincount(tokens, minlength=4) / count


def test_greedy_takes_the_most_likely():
    assert draws(Sampling(temperature=0.0))[1] == 1


def test_temperature_one_draws_from_the_model():
    assert np.abs(draws(Sampling(seed=3)) - [0.1, 0.4, 0.2, 0.3]).max() < 0.08


def test_low_temperature_sharpens_and_high_flattens():
    assert draws(Sampling(temperature=0.3, seed=1))[1] > 0.6
    assert draws(Sampling(temperature=2.0, seed=1))[0] > 0.13


@pytest.mark.parametrize(("top_p", "allowed"), [(0.39, {1}), (0.5, {1, 3}), (0.85, {1, 2, 3}), (1.0, {0, 1, 2, 3})])
def test_top_p_keeps_the_smallest_set_that_reaches_it(top_p: float, allowed: set[int]):
    assert set(np.flatnonzero(draws(Sampling(top_p=top_p, seed=5)))) == allowed


def test_a_seed_fixes_each_place_and_another_seed_changes_it():
    first = [choose(LOGITS, Sampling(seed=7), index, ()) for index in range(50)]
    assert first == [choose(LOGITS, Sampling(seed=7), index, ()) for index in range(50)]
    assert first != [choose(LOGITS, Sampling(seed=8), index, ()) for index in range(50)]
    assert choose(LOGITS, Sampling(seed=-1), 0, ()) in range(4)


def test_end_tokens_wait_for_min_tokens():
    assert choose(LOGITS, Sampling(temperature=0.0, min_tokens=2), 1, {1}) == 3
    assert choose(LOGITS, Sampling(temperature=0.0, min_tokens=2), 2, {1}) == 1
    assert LOGITS[1] == LOGITS.max(), "the model's logits are left alone"

"""llama.cpp's cells: whatever is shared, buried and moved, a sequence goes on as if it were alone in the cache."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from steelyard_engine.backends import StateRefused
from steelyard_engine.sampling import Sampling
from steelyard_engine.steps import Chunk, Free, Sequence, Share

STORY = "The old clock in the tower struck thirteen, and everybody in the square looked up, for it had never done that."


@pytest.fixture
def backend(gguf: str) -> Iterator[Any]:
    """A model with room for 128 + 128 tokens, so that the cache fills up often."""
    llama = import_module("steelyard_engine.backends.llama")
    backend = llama.LlamaBackend(Path(gguf), 128, kv_tokens=128, slots=6, batch_tokens=128, threads=1)
    backend.load()
    yield backend
    backend.close()


class Text:
    """A sequence in a slot, grown greedily one token at a time."""

    def __init__(self, backend: Any, slot: int, prompt: str | list[int], shared: int = 0) -> None:
        tokens = backend.tokenize(prompt, True) if isinstance(prompt, str) else prompt
        self.backend = backend
        self.sequence = Sequence(slot, tuple(tokens), 100, 0.0)
        self.sequence.slot = slot
        self.sequence.computed = shared

    def grow(self, count: int) -> list[int]:
        for _ in range(count):
            sequence = self.sequence
            chunk = Chunk(sequence, sequence.computed, len(sequence.tokens), True)
            sampled = self.backend.run([chunk], {sequence.id: Sampling(temperature=0.0)}, 0.0)
            sequence.computed = len(sequence.tokens)
            sequence.tokens.extend(sampled[sequence.id])
        return self.sequence.tokens[-count:]


def fill(backend: Any, slot: int, times: int) -> None:
    """Let other sequences come and go."""
    for number in range(times):
        Text(backend, slot, [1000 + number] * 70).grow(1)
        backend.apply(Free(slot))


def test_company_sharing_and_moving_change_no_token(backend: Any):
    tokens = backend.tokenize(STORY, True)
    other = [*tokens[:16], *backend.tokenize(" Then the birds", True)]
    expected = Text(backend, 0, tokens).grow(24)
    backend.apply(Free(0))
    expected_other = Text(backend, 0, other).grow(24)
    backend.apply(Free(0))
    fill(backend, 5, 1)
    first = Text(backend, 1, tokens)
    grown = first.grow(6)
    backend.apply(Share(1, 2, 16))
    second = Text(backend, 2, other, shared=16)
    grown_other = second.grow(6)
    fill(backend, 5, 2)
    grown += first.grow(6)
    grown_other += second.grow(6)
    backend.apply(Free(1))  # the one shared from goes; who shared keeps the prefix
    backend.apply(Share(2, 3, 16))
    third = Text(backend, 3, tokens, shared=16)
    fill(backend, 5, 2)
    grown += third.grow(24)[12:]
    grown_other += second.grow(12)
    assert backend.cells.moves >= 2
    assert grown == expected
    assert grown_other == expected_other


def test_what_nobody_uses_stays_outside_and_comes_back_as_it_was(backend: Any):
    tokens = backend.tokenize(STORY, True)
    other = [*tokens[:16], *backend.tokenize(" Then the birds", True)]
    expected = Text(backend, 0, tokens).grow(12)
    backend.apply(Free(0))
    expected_other = Text(backend, 0, other).grow(6)
    backend.apply(Free(0))
    first = Text(backend, 0, tokens)
    grown = first.grow(6)
    fill(backend, 5, 4)  # meanwhile the first is idle
    assert set(backend.cells._outside) == {0}
    backend.apply(Share(0, 1, 16))  # a part of what is outside
    assert Text(backend, 1, other, shared=16).grow(6) == expected_other
    assert set(backend.cells._outside) == {0}
    assert grown + first.grow(6) == expected  # and all of it
    assert not backend.cells._outside


def test_the_dead_are_cleared_long_before_the_cache_is_full(backend: Any):
    """Every token that is computed passes all filled cells, so they must not stay filled with what nobody needs."""
    Text(backend, 0, [1000] * 60).grow(1)
    backend.apply(Free(0))
    Text(backend, 1, [2000] * 20).grow(10)
    assert backend.cells.moves == 1
    assert backend.cells._filled == 29


def test_nothing_is_kept_of_a_slot_that_is_freed_outside(backend: Any):
    Text(backend, 0, [1000] * 30).grow(1)
    fill(backend, 5, 4)
    assert set(backend.cells._outside) == {0}
    backend.apply(Free(0))
    assert not backend.cells._outside
    tokens = backend.tokenize(STORY, True)
    expected = Text(backend, 1, tokens).grow(5)
    assert Text(backend, 0, tokens).grow(5) == expected


def test_a_state_goes_on_in_another_slot(backend: Any):
    tokens = backend.tokenize(STORY, True)
    text = Text(backend, 0, tokens)
    expected = text.grow(10)
    state = backend.export_state(0, len(tokens) - 1)
    fill(backend, 5, 3)
    backend.import_state(4, len(tokens) - 1, memoryview(state))
    assert Text(backend, 4, tokens, shared=len(tokens) - 1).grow(10) == expected


@pytest.mark.parametrize("wrong", ["other length", "cut", "noise"])
def test_a_wrong_state_is_refused_and_leaves_the_slot_empty(backend: Any, wrong: str):
    tokens = backend.tokenize(STORY, True)
    expected = Text(backend, 0, tokens).grow(5)
    state = backend.export_state(0, len(tokens) - 1)
    length = len(tokens) - 1 - (wrong == "other length")
    state = state[:-100] if wrong == "cut" else bytes(len(state)) if wrong == "noise" else state
    for _ in range(4):
        with pytest.raises(StateRefused):
            backend.import_state(3, length, memoryview(state))
    assert Text(backend, 3, tokens).grow(5) == expected


def test_cells_freed_before_a_sequence_are_not_filled_by_it(backend: Any):
    tokens = backend.tokenize(STORY, True)
    alone = Text(backend, 0, tokens)
    expected = alone.grow(40), last_logits(backend).tobytes()
    backend.apply(Free(0))
    Text(backend, 1, [1000] * 60).grow(1)
    text = Text(backend, 2, tokens)
    grown = text.grow(5)
    backend.apply(Free(1))
    assert (grown + text.grow(35), last_logits(backend).tobytes()) == expected


@pytest.mark.parametrize("size", [1, 7, 50])
def test_the_cut_of_a_prompt_changes_no_bit(backend: Any, size: int):
    tokens = (backend.tokenize(STORY, True) * 5)[:100]
    assert prefilled(backend, 0, tokens, 100) == prefilled(backend, 1, tokens, size)


def prefilled(backend: Any, slot: int, tokens: list[int], size: int) -> bytes:
    """Run a prompt in pieces of `size` and return the logits after its last token."""
    sequence = Text(backend, slot, tokens).sequence
    for start in range(0, len(tokens), size):
        end = min(start + size, len(tokens))
        backend.run([Chunk(sequence, start, end, end == len(tokens))], {sequence.id: Sampling()}, 0.0)
    return last_logits(backend).tobytes()


def last_logits(backend: Any) -> "np.ndarray[Any, Any]":
    row = import_module("llama_cpp").llama_get_logits_ith(backend._context, -1)
    return np.ctypeslib.as_array(row, (backend.vocabulary,)).copy()

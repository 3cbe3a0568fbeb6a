"""Guesses of a small model: it follows each sequence at its own pace, and its faults are nobody else's."""

import asyncio
import time
from collections.abc import Sequence as Tokens

import pytest
from steelyard_engine.backends.draft import Draft
from steelyard_engine.backends.simulated import SimulatedBackend, following
from steelyard_engine.engine import Engine, Options, Request
from steelyard_engine.profile import Decode, Prefill, Profile
from steelyard_engine.sampling import Sampling
from steelyard_engine.steps import Chunk, Free, Sequence


class Model:
    """Says what the simulated engine says, and checks that its cache holds what comes before each chunk."""

    slots, kv_tokens = 2, 100

    def __init__(self) -> None:
        self.cells: dict[int, list[int]] = {}
        self.widest = 0

    def run(self, chunks: Tokens[Chunk], sampling: dict[int, Sampling], kv_use: float) -> dict[int, Tokens[int]]:
        self.widest = max(self.widest, sum(chunk.size for chunk in chunks))
        for chunk in chunks:
            cells = self.cells.setdefault(chunk.sequence.slot, [])
            assert cells == chunk.sequence.tokens[: chunk.start]
            cells += chunk.sequence.tokens[chunk.start : chunk.end]
        return {
            chunk.sequence.id: [following(chunk.sequence.tokens[chunk.end - 1], chunk.end)]
            for chunk in chunks
            if chunk.sample
        }

    def apply(self, operation: Free) -> None:
        self.cells.pop(operation.slot, None)

    def cut(self, slot: int, tokens: int) -> None:
        del self.cells[slot][tokens:]


def draft(model: Model, batch: int = 8) -> Draft:
    return Draft(model, 3, batch)  # type: ignore[arg-type]  # the parts of a backend that it uses


def said(tokens: list[int], count: int) -> list[int]:
    text = list(tokens)
    for _ in range(count):
        text.append(following(text[-1], len(text)))
    return text[len(tokens) :]


def test_a_long_prompt_is_caught_up_with_over_several_steps() -> None:
    model = Model()
    guesser, sequence = draft(model), Sequence(1, tuple(range(20)), 9, 0.0)
    assert [guesser.propose([sequence]) for _ in range(2)] == [{}, {}], "sixteen of twenty tokens are computed"
    assert guesser.propose([sequence]) == {1: said(sequence.tokens, 3)}
    assert model.widest == 8


def test_wrong_guesses_are_taken_back() -> None:
    model = Model()
    guesser, sequence = draft(model), Sequence(1, (1, 2, 3), 9, 0.0)
    guesser.propose([sequence])
    sequence.tokens += [7, 8]
    assert guesser.propose([sequence]) == {1: said(sequence.tokens, 3)}


def test_others_are_guessed_for_while_a_long_one_catches_up() -> None:
    guesser = draft(Model())
    short, long = Sequence(1, (1, 2), 9, 0.0), Sequence(2, tuple(range(30)), 9, 0.0)
    for _ in range(3):
        assert guesser.propose([short, long]) == {1: said(short.tokens, 3)}


@pytest.mark.parametrize("prompts", [(60, 60), (3, 3, 3)], ids=["no room", "no slot"])
def test_a_sequence_without_room_gets_no_guesses_until_another_ends(prompts: tuple[int, ...]) -> None:
    model = Model()
    guesser = draft(model, batch=100)
    sequences = [Sequence(number, tuple(range(size)), 9, 0.0) for number, size in enumerate(prompts)]
    last = len(prompts) - 1
    assert last not in guesser.propose(sequences)
    guesser.forget([last])
    assert list(guesser.propose(sequences[-1:])) == [last]
    assert len(model.cells) == 1


class Broken:
    def propose(self, sequences: Tokens[Sequence]) -> dict[int, list[int]]:
        raise RuntimeError("llama.cpp could not run a batch")

    def forget(self, running: object) -> None:
        pass


def test_an_engine_whose_guesser_fails_goes_on_without() -> None:
    async def answer() -> tuple[str, bool]:
        profile = Profile(Prefill(0, 0), Decode(0), kv_tokens=1024)
        backend = SimulatedBackend(profile, "sim", None, slots=4)
        options = Options("sim", 2, 64, "chunked", 0.0, True, 1.0)
        engine = Engine(backend, options, Broken)
        engine.start()
        request = Request((1, 2, 3), 4, Sampling(temperature=0), (), False, False, time.monotonic())
        text = "".join([delta.text async for delta in engine.generate(request)])
        alive = engine.alive
        await engine.stop()
        return text, alive

    text, alive = asyncio.run(answer())
    assert (len(text.split()), alive) == (4, True)

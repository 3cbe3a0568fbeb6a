"""Guesses of a small model of the same vocabulary (draft-model speculation): greedy, one token a pass, all sequences at once.

The small model has a cache of its own, where each sequence is followed from its first guess on: its prompt is computed
once, then what the large model made of the last guesses. Where that cache is full, a sequence gets no guesses.
"""

from collections.abc import Collection
from collections.abc import Sequence as Tokens
from typing import Protocol

from ..sampling import Sampling
from ..steps import Chunk, Free, Sequence
from . import Backend

_GREEDY = Sampling(temperature=0)


class Model(Backend, Protocol):
    """A backend that can also forget the end of a sequence."""

    def cut(self, slot: int, tokens: int) -> None:
        """Keep only the first `tokens` tokens of a slot."""
        ...


class Draft:
    """A loaded small model; `tokens` guesses a sequence, after at most `batch_tokens` tokens a step of what it has to catch up
    with, so that a long prompt holds up nobody for long.
    """

    def __init__(self, model: Model, tokens: int, batch_tokens: int) -> None:
        self._model = model
        self._tokens = tokens
        self._batch = batch_tokens
        self._followed: dict[int, Sequence] = {}
        self._free = list(range(model.slots))

    def propose(self, sequences: Tokens[Sequence]) -> dict[int, list[int]]:
        """See `Guesser`: let sequences catch up, and those that have go on alone for as many tokens as are to be guessed."""
        taken = sum(len(own.tokens) for own in self._followed.values())
        own: list[Sequence] = []
        room = self._batch
        for sequence in sequences:
            known = self._followed.get(sequence.id)
            taken += len(sequence.tokens) + self._tokens - (len(known.tokens) if known else 0)
            if taken > self._model.kv_tokens or (known is None and not self._free):
                break
            one = self._catch_up(sequence)
            if one.pending <= room:
                own.append(one)
                room -= one.pending
            elif room:
                self._run([Chunk(one, one.computed, one.computed + room, False)])
                room = 0
        for _ in range(self._tokens):
            self._advance(own)
        return {one.id: one.tokens[-self._tokens :] for one in own}

    def forget(self, running: Collection[int]) -> None:
        """See `Guesser`."""
        for gone in [id for id in self._followed if id not in running]:
            slot = self._followed.pop(gone).slot
            self._model.apply(Free(slot))
            self._free.append(slot)

    def _catch_up(self, sequence: Sequence) -> Sequence:
        """Return our copy of a sequence with its present tokens, computed as far as they are those computed before."""
        own = self._followed.get(sequence.id)
        if own is None:
            own = Sequence(sequence.id, sequence.prompt, 0, 0.0, slot=self._free.pop())
            self._followed[sequence.id] = own
        same = _common(own.tokens[: own.computed], sequence.tokens[:-1])
        if same < own.computed:
            self._model.cut(own.slot, same)
            own.computed = same
        own.tokens = list(sequence.tokens)
        return own

    def _advance(self, own: list[Sequence]) -> None:
        """Compute all pending tokens of these sequences, which fit one batch, and add to each the most likely next one."""
        self._run([Chunk(one, one.computed, len(one.tokens), True) for one in own])

    def _run(self, chunks: list[Chunk]) -> None:
        if not chunks:
            return
        sampled = self._model.run(chunks, {chunk.sequence.id: _GREEDY for chunk in chunks}, 0.0)
        for chunk in chunks:
            chunk.sequence.computed = chunk.end
            chunk.sequence.tokens.extend(sampled.get(chunk.sequence.id, ()))


def _common(one: list[int], other: list[int]) -> int:
    """Return how many leading tokens are the same."""
    for place, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return place
    return min(len(one), len(other))

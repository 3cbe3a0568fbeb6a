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
    """A loaded small model; `tokens` guesses a sequence, computed in batches of at most `batch_tokens`."""

    def __init__(self, model: Model, tokens: int, batch_tokens: int) -> None:
        self._model = model
        self._tokens = tokens
        self._batch = batch_tokens
        self._followed: dict[int, Sequence] = {}
        self._free = list(range(model.slots))

    def propose(self, sequences: Tokens[Sequence]) -> dict[int, list[int]]:
        """See `Guesser`: let every sequence catch up, and then go on alone for as many tokens as are to be guessed."""
        taken = sum(len(own.tokens) for own in self._followed.values())
        own: list[Sequence] = []
        for sequence in sequences:
            known = self._followed.get(sequence.id)
            taken += len(sequence.tokens) + self._tokens - (len(known.tokens) if known else 0)
            if taken > self._model.kv_tokens or (known is None and not self._free):
                break
            own.append(self._catch_up(sequence))
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
        """Compute all pending tokens of these sequences, in batches, and add to each the most likely next one."""
        waiting = list(own)
        while waiting:
            chunks: list[Chunk] = []
            room = self._batch
            while waiting and room:
                first = waiting[0]
                end = min(first.computed + room, len(first.tokens))
                chunks.append(Chunk(first, first.computed, end, end == len(first.tokens)))
                room -= chunks[-1].size
                if chunks[-1].sample:
                    waiting.pop(0)
            sampled = self._model.run(chunks, {chunk.sequence.id: _GREEDY for chunk in chunks}, 0.0)
            for chunk in chunks:
                chunk.sequence.computed = chunk.end
                if chunk.sample:
                    chunk.sequence.tokens.extend(sampled[chunk.sequence.id])


def _common(one: list[int], other: list[int]) -> int:
    """Return how many leading tokens are the same."""
    for place, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return place
    return min(len(one), len(other))

"""Guesses at an answer's next tokens, which the model checks in one step (speculative decoding).

A guess is kept only where it is the very token that would have been sampled there, so the text of an answer never depends
on guesses (`sampling.py`: a seeded draw depends on the token's place alone); the time per token does.

`Lookup` copies what followed the last tokens where they stood before (prompt lookup decoding). A guesser with a small model
is `backends/draft.py`.
"""

from collections.abc import Collection, Iterable
from collections.abc import Sequence as Tokens
from typing import Literal, Protocol

from .steps import Sequence

Speculation = Literal["none", "ngram", "draft"]
_SHORTEST = 2  # tokens: a single one stands in too many places


class Guesser(Protocol):
    """Whoever guesses; used by the engine's worker only."""

    def propose(self, sequences: Tokens[Sequence]) -> dict[int, list[int]]:
        """Return guesses at what follows the tokens of each sequence, by its id; nothing where there is no good one."""

    def forget(self, running: Collection[int]) -> None:
        """Drop what is kept about all sequences but these, by id."""


class Lookup:
    """Guesses from the sequence's own tokens: at most `tokens` of them, after the longest run of at most `longest` tokens
    that ends the sequence and stood in it before, in its latest place.

    Costs one dictionary entry for each token and length of run, and as many look-ups a step.
    """

    def __init__(self, tokens: int, longest: int) -> None:
        self._tokens = tokens
        self._lengths = range(max(longest, _SHORTEST), _SHORTEST - 1, -1)
        self._places: dict[int, _Places] = {}

    def propose(self, sequences: Tokens[Sequence]) -> dict[int, list[int]]:
        """See `Guesser`."""
        found = {}
        for sequence in sequences:
            places = self._places.setdefault(sequence.id, _Places())
            guesses = places.after(sequence.tokens, self._lengths, self._tokens)
            if guesses:
                found[sequence.id] = guesses
        return found

    def forget(self, running: Collection[int]) -> None:
        """See `Guesser`."""
        for gone in [id for id in self._places if id not in running]:
            del self._places[gone]


class _Places:
    """Where each run of tokens of one sequence stood last; `_known` tokens are taken in, all but the last one."""

    def __init__(self) -> None:
        self._end_of: dict[tuple[int, ...], int] = {}  # run -> the place behind it
        self._known = 0

    def after(self, tokens: list[int], lengths: Iterable[int], count: int) -> list[int]:
        """Return the `count` tokens, or fewer, that followed the end of `tokens` before."""
        if len(tokens) < self._known:  # some were forgotten: the others stand elsewhere now
            self._end_of.clear()
            self._known = 0
        for end in range(self._known, len(tokens)):
            for length in lengths:
                if length <= end:
                    self._end_of[tuple(tokens[end - length : end])] = end
        self._known = len(tokens)
        for length in lengths:
            place = self._end_of.get(tuple(tokens[-length:])) if length <= len(tokens) else None
            if place is not None:
                return tokens[place : place + count]
        return []

"""The loop: guess, run the model over the guesses at once, verify, and count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from steelyard_kernels.model.llama import Llama
from steelyard_kernels.speculate.guess import Guesser, probabilities
from steelyard_kernels.speculate.speedup import Acceptance
from steelyard_kernels.speculate.verify import verify


class Decoded(NamedTuple):
    """The generated tokens, and what became of the guesses."""

    tokens: list[int]
    acceptance: Acceptance


@torch.no_grad()
def decode(
    model: Llama,
    text: Sequence[int],
    count: int,
    guesser: Guesser,
    guesses: int = 4,
    temperature: float = 0.0,
    generator: torch.Generator | None = None,
) -> Decoded:
    """Generate `count` tokens after `text`, distributed as the model's own at this temperature; equal to greedy at 0.

    Each step runs the model over the whole text again: this shows what is accepted, not how fast it is.
    """
    tokens, acceptance = list(text), Acceptance.none(guesses)
    while len(tokens) < len(text) + count:
        guess = guesser.guess(tokens, guesses, generator)
        logits = model.forward(torch.tensor([*tokens, *guess.tokens.tolist()]))[-len(guess.tokens) - 1 :]
        found = verify(guess.tokens, guess.draft, probabilities(logits, temperature), generator)
        acceptance = acceptance.after(len(guess.tokens), found.kept)
        tokens += found.tokens
    return Decoded(tokens[len(text) : len(text) + count], acceptance)

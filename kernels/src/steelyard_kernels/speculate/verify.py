"""Verification of guessed tokens by rejection sampling (arXiv 2211.17192), which leaves the model's distribution as it is.

With the draft's probabilities q and the model's p at each place, token x drawn from q is kept with probability min(1, p(x)/q(x)).
At the first one not kept, a token is drawn from norm(max(0, p − q)) and the rest of the guess is thrown away; if all are kept, one
more is drawn from p. Greedy decoding is the case of distributions with all mass on one token: guesses are kept while they are the
model's choice. A guess without a distribution (n-gram) is a q with all its mass on that guess: kept with probability p(x).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Verified(NamedTuple):
    """The tokens generated in this step, and how many of them were guesses."""

    tokens: list[int]
    kept: int


def verify(guess: Tensor, draft: Tensor, model: Tensor, generator: torch.Generator | None = None) -> Verified:
    """guess [n]; draft [n, vocabulary], what each guess was drawn from; model [n + 1, vocabulary], all probabilities."""
    count = len(guess)
    if draft.shape[0] != count or model.shape[0] != count + 1:
        raise ValueError(
            f"{count} guesses need {count} rows of draft and {count + 1} of model probabilities, "
            f"not {draft.shape[0]} and {model.shape[0]}"
        )
    tokens: list[int] = []
    for place in range(count):
        token = int(guess[place])
        p, q = model[place, token].item(), draft[place, token].item()
        if torch.rand((), generator=generator).item() * q < p:
            tokens.append(token)
            continue
        rest = (model[place] - draft[place]).clamp(min=0)
        # p = q up to rounding leaves nothing to draw from; then p itself is right.
        chances = rest if rest.sum() > 0 else model[place]
        return Verified([*tokens, int(torch.multinomial(chances, 1, generator=generator))], place)
    return Verified([*tokens, int(torch.multinomial(model[count], 1, generator=generator))], count)


def verify_greedy(guess: Tensor, logits: Tensor) -> Verified:
    """Guesses [n] against the model's logits [n + 1, vocabulary]: the tokens that greedy decoding gives."""
    best = logits.argmax(-1)
    same = (best[: len(guess)] == guess).long().cumprod(0)
    kept = int(same.sum())
    return Verified(best[: kept + 1].tolist(), kept)


def one_hot(guess: Tensor, vocabulary: int) -> Tensor:
    """The distribution of a guess that was not drawn [n] → [n, vocabulary]."""
    return torch.nn.functional.one_hot(guess, vocabulary).float()

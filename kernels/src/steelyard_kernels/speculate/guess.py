"""Where guesses come from: earlier text (n-gram), a smaller model, or the model's own first layers.

`NgramGuesser` finds the last place where the text's last tokens occurred before, and guesses what followed there.
`DraftGuesser` lets a cheaper model run ahead, with its own cache; the target's first layers are one (`first_layers`, LayerSkip).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from steelyard_kernels.model.llama import Llama
from steelyard_kernels.speculate.verify import one_hot


class Guess(NamedTuple):
    """Tokens [n] and the probabilities each was drawn from [n, vocabulary]."""

    tokens: Tensor
    draft: Tensor


class Guesser(Protocol):
    """Guesses up to `count` tokens after a text; fewer, or none, when it has nothing to say."""

    def guess(self, text: Sequence[int], count: int, generator: torch.Generator | None) -> Guess: ...


class NgramGuesser:
    """Looks for the last `longest`, then fewer, tokens earlier in the text."""

    def __init__(self, vocabulary: int, longest: int = 4, shortest: int = 1) -> None:
        if not 1 <= shortest <= longest:
            raise ValueError(f"shortest is {shortest} and longest {longest}; they must be 1 ≤ shortest ≤ longest")
        self.vocabulary, self.longest, self.shortest = vocabulary, longest, shortest

    def guess(self, text: Sequence[int], count: int, generator: torch.Generator | None = None) -> Guess:
        """What followed the most recent earlier occurrence of the longest suffix that has one."""
        text = list(text)
        for size in range(min(self.longest, len(text) - 1), self.shortest - 1, -1):
            suffix = text[-size:]
            for start in range(len(text) - size - 1, -1, -1):
                if text[start : start + size] == suffix:
                    found = torch.tensor(text[start + size : start + size + count])
                    return Guess(found, one_hot(found, self.vocabulary))
        return Guess(torch.empty(0, dtype=torch.int64), torch.empty(0, self.vocabulary))


class DraftGuesser:
    """Draws from a cheaper model at a temperature; 0 takes its best token."""

    def __init__(self, model: Llama, temperature: float = 1.0) -> None:
        self.model, self.temperature = model, temperature

    @torch.no_grad()
    def guess(self, text: Sequence[int], count: int, generator: torch.Generator | None = None) -> Guess:
        """Runs the draft over the text, then token by token."""
        caches = self.model.new_caches()
        logits = self.model.forward(torch.tensor(text), caches)[-1]
        tokens, drafts = [], []
        for place in range(count):
            chances = probabilities(logits, self.temperature)
            token = torch.multinomial(chances, 1, generator=generator)
            tokens.append(token)
            drafts.append(chances)
            if place + 1 < count:
                logits = self.model.forward(token, caches)[-1]
        return Guess(torch.cat(tokens), torch.stack(drafts))


def first_layers(model: Llama, config: dict[str, object], layers: int) -> Llama:
    """A draft of the model's own first layers and its head: no weights of its own."""
    draft = Llama({**config, "num_hidden_layers": layers}, {})
    draft.weights = model.weights
    return draft


def probabilities(logits: Tensor, temperature: float) -> Tensor:
    """Softmax at a temperature; at 0 all mass on the best."""
    if temperature == 0:
        return one_hot(logits.argmax(-1), logits.shape[-1])
    return (logits / temperature).softmax(-1)

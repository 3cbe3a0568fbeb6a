"""What is measured and how: the model, its calibration, and perplexity over windows that calibration did not see."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from steelyard_kernels.model import gguf
from steelyard_kernels.model.llama import Llama
from steelyard_kernels.quant.statistics import Statistics, collect
from steelyard_kernels.quantize import text

Activations = Callable[[str, Tensor], Tensor]


class Effort(NamedTuple):
    """How much is measured: evaluation windows of `tokens` tokens, calibration windows of CALIBRATION, each `every`th layer's
    weights, long windows for caches, steps of learning."""

    windows: int
    tokens: int
    samples: int
    every: int
    cache_windows: int
    spin_steps: int


FULL = Effort(windows=16, tokens=128, samples=10, every=1, cache_windows=16, spin_steps=30)
QUICK = Effort(windows=3, tokens=128, samples=6, every=6, cache_windows=2, spin_steps=0)


class Subject(NamedTuple):
    """A model in fp32, its config, windows [n, tokens], a long text [tokens] for caches, and what is to be done."""

    model: Llama
    config: dict[str, Any]
    calibration: Tensor
    evaluation: Tensor
    long: Tensor
    effort: Effort

    def linears(self) -> list[str]:
        """The names of the linears whose weights are changed."""
        return [name for name in self.model.linears() if int(name.split(".")[2]) % self.effort.every == 0]

    def statistics(self) -> dict[str, Statistics]:
        """Of those linears' inputs over the calibration."""
        return collect(self.model, self.calibration, self.linears())

    def perplexity(self, weights: dict[str, Tensor], activations: Activations | None = None) -> float:
        """With some weights replaced, and inputs of the linears changed on their way."""
        model = Llama(self.config, {})
        model.weights = {**self.model.weights, **weights}
        model.on_input = activations
        return perplexity(model, self.evaluation)


@torch.no_grad()
def perplexity(model: Llama, windows: Tensor) -> float:
    """e to the mean −ln p of a token given those before it in its window."""
    losses = [F.cross_entropy(model.forward(window)[:-1], window[1:]) for window in windows]
    return torch.stack(losses).mean().exp().item()


def load(path: Path, effort: Effort) -> Subject:
    """From a GGUF file of SmolLM2. Texts are the help texts of Python's standard library, their last fifth held out.

    A text of another kind would ask for far more calibration: GPTQ with a thousand tokens of these made the GPL-3 worse than
    plain rounding does (perplexity 143 against 86, in a sixth of the layers).
    """
    checkpoint = gguf.read(path)
    with torch.no_grad():
        model = Llama(checkpoint.config, checkpoint.tensors)
    calibration, evaluation, long = (
        text.windows(checkpoint.tokenizer, None, None, samples, tokens, judged)
        for samples, tokens, judged in (
            (effort.samples, CALIBRATION, 0),
            (0, effort.tokens, effort.windows),
            (0, PREFIX + SCORED, effort.cache_windows),
        )
    )
    parts = calibration.calibration, evaluation.evaluation, long.evaluation
    return Subject(model, checkpoint.config, *parts, effort)


PREFIX, SCORED, CALIBRATION = 256, 32, 128
"""Tokens of a long window that fill a cache, and those after them whose likelihood is measured; tokens of a calibration window."""

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
    """How much is measured: evaluation windows of `tokens` tokens of each text, calibration windows of CALIBRATION, each
    `every`th layer's weights, long windows for caches."""

    windows: int
    tokens: int
    samples: int
    every: int
    cache_windows: int


FULL = Effort(windows=16, tokens=128, samples=48, every=1, cache_windows=16)
QUICK = Effort(windows=3, tokens=128, samples=8, every=6, cache_windows=2)
LICENCE = Path("/usr/share/common-licenses/GPL-3")
"""A text of another kind than the calibration's: Debian and what is made from it have it."""


class Subject(NamedTuple):
    """A model in fp32, its config, windows [n, tokens] for calibration, of the same text and of another one for judging, long
    ones for caches, and what is to be done."""

    model: Llama
    config: dict[str, Any]
    calibration: Tensor
    evaluation: Tensor
    elsewhere: Tensor
    long: Tensor
    effort: Effort

    def linears(self) -> list[str]:
        """The names of the linears whose weights are changed."""
        return [name for name in self.model.linears() if int(name.split(".")[2]) % self.effort.every == 0]

    def statistics(self) -> dict[str, Statistics]:
        """Of those linears' inputs over the calibration."""
        return collect(self.model, self.calibration, self.linears())

    def changed(self, weights: dict[str, Tensor], activations: Activations | None = None) -> Llama:
        """The model with some weights replaced, and inputs of the linears changed on their way."""
        model = Llama(self.config, {})
        model.weights = {**self.model.weights, **weights}
        model.on_input = activations
        return model

    def judge(self, model: Llama) -> dict[str, Any]:
        """Perplexity on both texts, and the mean −ln p of each window, by which two models are compared pair by pair."""
        same, other = (losses(model, windows) for windows in (self.evaluation, self.elsewhere))
        found = {"perplexity": same.mean().exp().item(), "elsewhere": other.mean().exp().item()}
        return {**found, "nll": same.tolist(), "nll_elsewhere": other.tolist()}


@torch.no_grad()
def losses(model: Llama, windows: Tensor) -> Tensor:
    """Mean −ln p of a token given those before it in its window, [windows]."""
    return torch.stack([F.cross_entropy(model.forward(window)[:-1], window[1:]) for window in windows])


def load(path: Path, effort: Effort, other: Path = LICENCE) -> Subject:
    """From a GGUF file of SmolLM2. Calibration: the packaged sample. The last fifth of the help texts, which it leaves out, is
    one of the texts to judge by; `other` is the other one."""
    checkpoint = gguf.read(path)
    with torch.no_grad():
        model = Llama(checkpoint.config, checkpoint.tensors)

    def windows(samples: int, tokens: int, judged: int, judge: Path | None = None) -> text.Windows:
        return text.windows(checkpoint.tokenizer, None, judge, samples, tokens, judged)

    return Subject(
        model,
        checkpoint.config,
        windows(effort.samples, CALIBRATION, 0).calibration,
        windows(0, effort.tokens, effort.windows).evaluation,
        windows(0, effort.tokens, effort.windows, other).evaluation,
        windows(0, PREFIX + SCORED, effort.cache_windows).evaluation,
        effort,
    )


PREFIX, SCORED, CALIBRATION = 256, 32, 256
"""Tokens of a long window that fill a cache, and those after them whose likelihood is measured; tokens of a calibration window."""

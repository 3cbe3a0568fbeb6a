"""What calibration remembers of a linear's inputs: H = X·Xᵀ, mean|x|, max|x| and how many tokens they come from."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from steelyard_kernels.model.llama import Llama

FIRST_READER = {"k_proj": "q_proj", "v_proj": "q_proj", "up_proj": "gate_proj"}
"""Linears that read what another one read just before, and so share its statistics."""


@dataclass
class Statistics:
    """Sums over tokens; hessian [inputs, inputs], total [inputs] of |x|, largest [inputs]."""

    hessian: Tensor
    total: Tensor
    largest: Tensor
    tokens: int = 0

    @staticmethod
    def empty(inputs: int) -> Statistics:
        """Of no tokens yet."""
        return Statistics(torch.zeros(inputs, inputs), torch.zeros(inputs), torch.zeros(inputs))

    def add(self, x: Tensor) -> None:
        """Count inputs [tokens, inputs] in."""
        self.hessian += x.T @ x
        self.total += x.abs().sum(0)
        self.largest = torch.maximum(self.largest, x.abs().amax(0))
        self.tokens += len(x)

    def magnitude(self) -> Tensor:
        """mean|x| [inputs]."""
        return self.total / max(self.tokens, 1)


@torch.no_grad()
def collect(model: Llama, windows: Tensor, names: Collection[str]) -> dict[str, Statistics]:
    """Run windows of tokens [windows, length] through the model and watch the inputs of the named linears."""
    first = {name: _first_reader(name) for name in names}
    wanted = {name: Statistics.empty(model.weights[f"{name}.weight"].shape[1]) for name in set(first.values())}

    def watch(name: str, x: Tensor) -> Tensor:
        if name in wanted:
            wanted[name].add(x)
        return x

    before, model.on_input = model.on_input, watch
    try:
        for window in windows:
            model.forward(window)
    finally:
        model.on_input = before
    return {name: wanted[reader] for name, reader in first.items()}


def _first_reader(name: str) -> str:
    block, _, part = name.rpartition(".")
    return f"{block}.{FIRST_READER.get(part, part)}"

"""PM-KVQ (arXiv 2505.18610): mixed precision by layer, reached gradually as the cache fills. Written from the paper's equations.

1. A layer's sensitivity at b bits is mean |(Q_b(x) − x) · ∂L/∂x| over its keys and values x: the first-order change of the loss.
2. An integer programme gives each layer one of the bit widths: least total sensitivity within the memory budget.
3. Every layer starts at 16 bits. When it outgrows its share it halves its codes in place, 16 → 8 → 4 → 2, down to its own width.
   With m = b/2 the step to m bits is a shift instead of a division: q' = ((q + 2^(m−1)) · (2^(2m) − 2^m + 1)) >> 3m, for
   round(q / (2^m + 1)), with scale · (2^m + 1) and the same low, since 2^(2m) − 1 = (2^m − 1)(2^m + 1).
The first `sinks` tokens and the last `window` ones stay as they come. Groups are along the width of a head.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from scipy.optimize import Bounds, LinearConstraint, milp
from torch import Tensor

from steelyard_kernels.kv import affine
from steelyard_kernels.kv.affine import Packed
from steelyard_kernels.kv.cache import Cache
from steelyard_kernels.quant.groups import pack, unpack


def sensitivity(values: Tensor, gradient: Tensor, bits: int, group: int) -> float:
    """How much the loss changes, to first order, when values [..., n] are kept in `bits` bits."""
    moved = affine.quantize(values, bits, group).dequantize() - values.float()
    return (moved * gradient.float()).abs().mean().item()


def allocate(sensitivities: Sequence[Sequence[float]], sizes: Sequence[float], budget: float) -> list[int]:
    """For each layer the index of its bit width: least sum of `sensitivities[layer][choice]` with sum of `sizes[choice]` ≤ budget.

    Raises ValueError when even the smallest choices do not fit.
    """
    layers, choices = len(sensitivities), len(sizes)
    if min(sizes) * layers > budget:
        raise ValueError(
            f"the budget is {budget:g} but {layers} layers need at least {min(sizes) * layers:g}; raise it"
        )
    one_each = np.kron(np.eye(layers), np.ones(choices))
    size = np.tile(np.asarray(sizes, dtype=float), layers)
    found = milp(
        np.asarray(sensitivities, dtype=float).ravel(),
        constraints=[LinearConstraint(one_each, 1, 1), LinearConstraint(size, -np.inf, budget)],
        integrality=np.ones(layers * choices),
        bounds=Bounds(0, 1),
    )
    return found.x.reshape(layers, choices).argmax(1).tolist()


def halve_codes(codes: Tensor, bits: int) -> Tensor:
    """Codes of `bits` bits → codes of half as many, rounded to nearest, without a division."""
    m = bits // 2
    return (((codes.to(torch.int64) + 2 ** (m - 1)) * (2 ** (2 * m) - 2**m + 1)) >> (3 * m)).to(torch.int32)


def halve(packed: Packed) -> Packed:
    """The same values in half the bits."""
    m = packed.bits // 2
    codes = halve_codes(unpack(packed.words, packed.bits), packed.bits)
    scale = packed.scale.float() * (2**m + 1)
    return Packed(pack(codes, m), scale.to(packed.scale.dtype), packed.low, m)


class ProgressiveCache(Cache):
    """Codes that lose half their bits whenever they outgrow `budget` bytes, and never go below `least_bits`."""

    def __init__(self, budget: int, least_bits: int = 4, group: int = 64, sinks: int = 1, window: int = 128) -> None:
        super().__init__()
        if least_bits not in (2, 4, 8, 16):
            raise ValueError(f"least_bits is {least_bits}; codes halve from 16, so it must be 2, 4, 8 or 16")
        self.budget, self.least_bits, self.group, self.sinks, self.window = budget, least_bits, group, sinks, window
        self.bits = 16
        self.sink_keys = self.sink_values = self.recent_keys = self.recent_values = torch.empty(0)
        self.packed: tuple[Packed, Packed] | None = None

    def _extended(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        self.recent_keys, self.recent_values = _joined(self.recent_keys, keys), _joined(self.recent_values, values)
        middle = [part.dequantize().to(keys.dtype) for part in self.packed] if self.packed else [torch.empty(0)] * 2
        return (
            _joined(self.sink_keys, middle[0], self.recent_keys),
            _joined(self.sink_values, middle[1], self.recent_values),
        )

    def settle(self, probabilities: Tensor) -> None:
        """Take the sinks aside, pack what leaves the window, and halve the codes while they are over budget."""
        if not self.sink_keys.numel() and self.sinks:
            self.sink_keys, self.recent_keys = self.recent_keys[:, : self.sinks], self.recent_keys[:, self.sinks :]
            self.sink_values, self.recent_values = (
                self.recent_values[:, : self.sinks],
                self.recent_values[:, self.sinks :],
            )
        over = self.recent_keys.shape[1] - self.window
        if over <= 0:
            return
        leaving = [
            # A 16-bit code means nothing with a scale of 11 significant bits.
            affine.quantize(part[:, :over], 16, self.group, scales=torch.float32)
            for part in (self.recent_keys, self.recent_values)
        ]
        self.recent_keys, self.recent_values = self.recent_keys[:, over:], self.recent_values[:, over:]
        while leaving[0].bits > self.bits:
            leaving = [halve(part) for part in leaving]
        if self.packed is not None:
            leaving = [affine.joined([old, new], 1) for old, new in zip(self.packed, leaving, strict=True)]
        while self.bits > self.least_bits and sum(part.nbytes() for part in leaving) > self.budget:
            leaving = [halve(part) for part in leaving]
            self.bits = leaving[0].bits
        self.packed = (leaving[0], leaving[1])

    def bytes(self) -> int:
        """Codes, scales, lows, sinks and window."""
        plain = (self.sink_keys, self.sink_values, self.recent_keys, self.recent_values)
        return sum(part.nbytes() for part in self.packed or ()) + sum(part.nbytes for part in plain)


def _joined(*parts: Tensor) -> Tensor:
    return torch.cat([part for part in parts if part.numel()], 1)

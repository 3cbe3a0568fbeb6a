"""Rotary position embedding (RoFormer, arXiv 2104.09864), by the two halves of a head as Llama does.

The pair (x_i, x_{i+d/2}) turns by the angle p·r_i at position p, so that a dot product of a query and a key depends only on their
distance. Its rate r_i is θ^(−2i/d); models made for longer texts than they were first trained on slow some down (`Stretch`).
StreamingLLM turns cached keys when they are read, at their place inside the cache, and so needs this as an op.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from steelyard_kernels.backend import uses_triton


class Stretch(NamedTuple):
    """How rates are slowed by `factor`: all of them (linear), or as Llama 3 does, whose `first` is the length it was trained on.

    Llama 3 slows pairs that turn less than `low` times over that length, leaves those that turn more than `high` times, and goes
    from one to the other in between.
    """

    factor: float
    first: int = 0  # 0: linear
    low: float = 1.0
    high: float = 4.0


def rates_of(width: int, theta: float, stretch: Stretch | None = None) -> Tensor:
    """Radians a position of each pair, [width/2] float64."""
    half = width // 2
    rates = theta ** (-torch.arange(half, dtype=torch.float64) / half)
    if stretch is None:
        return rates
    if not stretch.first:
        return rates / stretch.factor
    turns = stretch.first * rates / (2 * math.pi)
    kept = ((turns - stretch.low) / (stretch.high - stretch.low)).clamp(0, 1)
    return rates * (kept + (1 - kept) / stretch.factor)


def rotate_ref(x: Tensor, positions: Tensor, rates: Tensor) -> Tensor:
    """Turn x [heads, tokens, d] to its tokens' positions [tokens] at rates [d/2]; computed in fp32, or fp64 when x is."""
    working = x if x.dtype == torch.float64 else x.float()
    half = x.shape[-1] // 2
    angles = positions.double()[:, None] * rates.to(x.device, torch.float64)
    cosine, sine = angles.cos().to(working.dtype), angles.sin().to(working.dtype)
    left, right = working[..., :half], working[..., half:]
    return torch.cat([left * cosine - right * sine, right * cosine + left * sine], -1).to(x.dtype)


@triton.jit
def _rotate_kernel(x, positions, rates, out, tokens, HALF: tl.constexpr, LANES: tl.constexpr, ROWS: tl.constexpr):
    """One program: ROWS tokens of one head. `rates` [HALF] are the angles' speeds, radians a position."""
    head = tl.program_id(0).to(tl.int64)
    token = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    lane = tl.arange(0, LANES)
    inside = (token < tokens)[:, None] & (lane < HALF)[None, :]
    at = (head * tokens + token)[:, None] * (2 * HALF) + lane[None, :]
    position = tl.load(positions + token, mask=token < tokens, other=0).to(tl.float32)
    angle = position[:, None] * tl.load(rates + lane, mask=lane < HALF, other=0.0)[None, :]
    cosine, sine = tl.cos(angle), tl.sin(angle)
    left = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    right = tl.load(x + at + HALF, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + at, (left * cosine - right * sine).to(out.dtype.element_ty), mask=inside)
    tl.store(out + at + HALF, (right * cosine + left * sine).to(out.dtype.element_ty), mask=inside)


def rotate(x: Tensor, positions: Tensor, rates: Tensor) -> Tensor:
    """`rotate_ref`, or its kernel on a GPU; the kernel's angles are fp32, so positions beyond 2^20 lose digits."""
    if x.shape[-1] % 2:
        raise ValueError(f"a head of {x.shape[-1]} has no two halves; its width must be even")
    if not uses_triton(x) or x.dtype == torch.float64:
        return rotate_ref(x, positions, rates)
    heads, tokens, width = x.shape
    half = width // 2
    x, out = x.contiguous(), torch.empty_like(x)
    grid = (heads, triton.cdiv(tokens, 32))
    _rotate_kernel[grid](
        x, positions, rates.to(x.device, torch.float32), out, tokens, HALF=half, LANES=triton.next_power_of_2(half), ROWS=32
    )  # fmt: skip
    return out

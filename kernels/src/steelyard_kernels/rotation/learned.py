"""SpinQuant's rotations for a model: learn R1 and R2 for 4-bit inputs, keep them in a file, read them back.

The learning never rotates a weight. Rotated activations are rounded and turned back before the unrotated weight,
    y = W · (Q(x·R)·Rᵀ),
which equals what the rotated weight computes and costs tokens·n² instead of weights·n. Roundings pass gradients straight through.
Weights stay exact while learning, as in the paper, and are rounded afterwards. The whole model is in memory.

A file (safetensors) holds `residual` [width, width] and `value` [head, head] in fp16, and the losses on the way; `read` makes
rotations of them again, whose columns fp16 leaves orthonormal to three digits.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from steelyard_kernels.model.llama import Llama, OnInput
from steelyard_kernels.rotation import spin
from steelyard_kernels.rotation.hadamard import factors, random_rotation, turn_ref
from steelyard_kernels.rotation.quarot import fold_norms

CLIP, LEVELS = 0.9, 7
RATE = 1.5
FAR = 0.05  # columns further from orthonormal are no rounded rotation


class Rotations(NamedTuple):
    """R1 [width, width], R2 [head, head], float64, and the loss at each step that led to them."""

    residual: Tensor
    value: Tensor
    losses: list[float]


def fixed(width: int, head: int) -> Rotations:
    """QuaRot's: Hadamard matrices with random signs, the same at every call; ValueError where no such order is built."""
    return Rotations(random_rotation(width, 0), random_rotation(head, 1), [])


def four_bits(x: Tensor) -> Tensor:
    """A symmetric scale a token, at 0.9 of its maximum, rounded straight through."""
    step = x.detach().abs().amax(-1, keepdim=True).clamp(min=1e-8) * CLIP / LEVELS
    return x + ((x.detach() / step).round().clamp(-LEVELS - 1, LEVELS) * step - x.detach())


def learning_model(model: Llama, config: dict[str, Any], residual: Tensor, value: Tensor) -> Llama:
    """Folded, unrotated weights; each linear's input is rotated, rounded and turned back, once for linears that share it."""
    out = Llama(config, {})
    out.weights = fold_norms(model.weights, model.shape.layers)
    out.on_input = _rounded_in_turn(residual, value)
    return out


def _rounded_in_turn(residual: Tensor, value: Tensor) -> OnInput:
    last: tuple[Tensor | None, Tensor | None] = (None, None)

    def on_input(name: str, x: Tensor) -> Tensor:
        nonlocal last
        if name.endswith("down_proj"):
            return _turned_back(four_bits(turn_ref(x)))
        if name.endswith("o_proj"):
            heads = x.unflatten(-1, (-1, len(value)))
            return (four_bits((heads @ value).flatten(-2)).unflatten(-1, (-1, len(value))) @ value.T).flatten(-2)
        if last[0] is not x or last[1] is None:
            last = (x, four_bits(x @ residual) @ residual.T)
        assert last[1] is not None
        return last[1]

    return on_input


def _turned_back(x: Tensor) -> Tensor:
    """The inverse of `turn_ref`, x·H/√n, whose two factors are transposed."""
    left, right = (factor.to(x.dtype) for factor in factors(x.shape[-1]))
    matrix = x.unflatten(-1, (len(left), len(right)))
    return (left.T @ matrix @ right).flatten(-2) / x.shape[-1] ** 0.5


def learn(
    model: Llama,
    config: dict[str, Any],
    windows: Tensor,
    steps: int,
    progress: Callable[[int, float], None] = lambda step, loss: None,
) -> Rotations:
    """`steps` steps from QuaRot's rotations, one of the windows [windows, tokens] a step; `progress` hears each step's loss."""
    start = fixed(model.shape.width, model.shape.head)
    rotations = [start.residual.float().requires_grad_(), start.value.float().requires_grad_()]
    learning = learning_model(model, config, *rotations)
    count = 0

    def loss() -> Tensor:
        nonlocal count
        window = windows[count % len(windows)]
        count += 1
        found = F.cross_entropy(learning.forward(window)[:-1], window[1:])
        progress(count, found.item())
        return found

    losses = spin.learn(rotations, loss, steps, RATE)
    residual, value = (spin.nearest_rotation(rotation.detach().double()) for rotation in rotations)
    return Rotations(residual, value, losses)


def write(rotations: Rotations, path: Path) -> None:
    """Keep them in a file."""
    tensors = {"residual": rotations.residual.half().contiguous(), "value": rotations.value.half().contiguous()}
    save_file(tensors, path, metadata={"losses": json.dumps([round(loss, 4) for loss in rotations.losses])})


def read(path: Path, width: int, head: int) -> Rotations:
    """The file's rotations for a model of these widths; ValueError says why it does not hold them."""
    try:
        with safe_open(path, "pt") as file:
            found = {name: file.get_tensor(name).double() for name in ("residual", "value")}
            losses = json.loads((file.metadata() or {}).get("losses", "[]"))
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} cannot be read as rotations: {error}") from error
    for name, size in (("residual", width), ("value", head)):
        matrix = found[name]
        if matrix.shape != (size, size):
            raise ValueError(f"{path}: {name} is {list(matrix.shape)}; this model needs [{size}, {size}]")
        if not (matrix.T @ matrix - torch.eye(size, dtype=torch.float64)).abs().max() < FAR:
            raise ValueError(f"{path}: {name} is no rotation; make the file with `steelyard-kernels learn-rotations`")
    return Rotations(spin.nearest_rotation(found["residual"]), spin.nearest_rotation(found["value"]), losses)

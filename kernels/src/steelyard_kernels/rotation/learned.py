"""SpinQuant's rotations for a model: learn R1 and R2 for 4-bit inputs, keep them in a file, read them back.

Weights stay exact while learning, as in the paper, and are rounded afterwards. What is lowered is not the paper's loss of the whole
model, whose gradient over the few windows that a CPU can afford is mostly noise (learning by it lost to the rotations it started
from), but the errors of the linears' outputs (`cost`): a step costs two products a site, and takes tokens of all windows.
Gradients do not only pass roundings straight through: they reach a token's scale too, and so its largest number, which is what
a rotation can lower. The inputs of all windows are in memory beside the whole model.

A file (safetensors) holds `residual` [width, width] and `value` [head, head] in fp16, and the losses on the way; `read` makes
rotations of them again, whose columns fp16 leaves orthonormal to three digits.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from steelyard_kernels.rotation import spin
from steelyard_kernels.rotation.cost import Gathered, cost
from steelyard_kernels.rotation.hadamard import random_rotation

CLIP, LEVELS = 0.9, 7
RATE = 1.0
DRAWN = 64  # tokens of every site a step
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
    """A symmetric scale a token, at 0.9 of its maximum; gradients pass the rounding straight through and reach the scale."""
    step = x.abs().amax(-1, keepdim=True).clamp(min=1e-8) * CLIP / LEVELS
    exact = (x / step).detach()
    return x + step * (exact.round().clamp(-LEVELS - 1, LEVELS) - exact)


def learn(
    gathered: Gathered, start: Rotations, steps: int, progress: Callable[[int, float], None] = lambda step, loss: None
) -> Rotations:
    """`steps` steps from rotations, each over some tokens of every site; `progress` hears a step's cost, of R1 and R2 together."""
    rotations = [one.float().requires_grad_() for one in (start.residual, start.value)]
    generator = torch.Generator().manual_seed(0)
    count = 0

    def loss() -> Tensor:
        nonlocal count
        count += 1
        drawn = gathered.drawn(DRAWN, generator)
        costs = [cost(inputs, rotation, four_bits) for inputs, rotation in zip(drawn, rotations, strict=True)]
        found = torch.stack(costs).sum()
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

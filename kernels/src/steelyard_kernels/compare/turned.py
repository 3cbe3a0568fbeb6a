"""4-bit weights and 4-bit activations: as they are, with fixed rotations (QuaRot), and with learned ones (SpinQuant).

The learning never rotates a weight. Rotated activations are rounded and turned back before the unrotated weight,
    y = W · (Q(x·R)·Rᵀ),
which equals what the rotated weight computes and costs tokens·n² instead of weights·n. Roundings pass gradients straight through.
Weights stay exact while learning, as in the paper, and are rounded afterwards.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from steelyard_kernels.compare.subject import Subject, perplexity
from steelyard_kernels.model.llama import Llama
from steelyard_kernels.quant.groups import quantize_groups
from steelyard_kernels.rotation import spin
from steelyard_kernels.rotation.hadamard import hadamard, random_rotation
from steelyard_kernels.rotation.quarot import fold_norms, rotate_weights, turn_down

BITS, GROUP, CLIP = 4, 64, 0.9
RATE = 1.5


def four_bits(x: Tensor) -> Tensor:
    """A symmetric scale a token, at 0.9 of its maximum, rounded straight through."""
    step = x.detach().abs().amax(-1, keepdim=True).clamp(min=1e-8) * CLIP / 7
    return x + ((x.detach() / step).round().clamp(-8, 7) * step - x.detach())


@torch.no_grad()
def rounded(model: Llama, config: dict[str, Any], turned: bool) -> Llama:
    """Weights rounded to 4 bits by groups, activations to 4 bits by tokens; `turned` models turn the input of down_proj."""
    out = Llama(config, {})
    out.weights = dict(model.weights)
    for name in model.linears():
        out.weights[f"{name}.weight"] = quantize_groups(model.weights[f"{name}.weight"], BITS, GROUP).dequantize()
    out.on_input = (lambda name, x: four_bits(turn_down(name, x))) if turned else (lambda name, x: four_bits(x))
    return out


@torch.no_grad()
def with_rotations(subject: Subject, residual: Tensor, value: Tensor) -> Llama:
    """The model that computes the same on rotated activations, before any rounding."""
    folded = fold_norms(subject.model.weights, subject.model.shape.layers)
    out = Llama(subject.config, {})
    out.weights = rotate_weights(folded, subject.model.shape, residual.float(), value.float())
    return out


def learning_model(subject: Subject, residual: Tensor, value: Tensor) -> Llama:
    """Folded, unrotated weights; each linear's input is rotated, rounded and turned back."""
    out = Llama(subject.config, {})
    out.weights = fold_norms(subject.model.weights, subject.model.shape.layers)
    inner = hadamard(subject.model.shape.hidden) / subject.model.shape.hidden**0.5

    def on_input(name: str, x: Tensor) -> Tensor:
        if name.endswith("down_proj"):
            return four_bits(x @ inner.T) @ inner
        if name.endswith("o_proj"):
            heads = x.unflatten(-1, (-1, len(value)))
            return (four_bits((heads @ value).flatten(-2)).unflatten(-1, (-1, len(value))) @ value.T).flatten(-2)
        return four_bits(x @ residual) @ residual.T

    out.on_input = on_input
    return out


def learn(subject: Subject, steps: int) -> tuple[list[Tensor], list[float]]:
    """R1 and R2 after `steps` steps from QuaRot's, one calibration window a step; and the losses on the way."""
    shape = subject.model.shape
    rotations = [
        random_rotation(size, seed).float().requires_grad_() for seed, size in enumerate((shape.width, shape.head))
    ]
    model = learning_model(subject, *rotations)
    count = 0

    def loss() -> Tensor:
        nonlocal count
        window = subject.calibration[count % len(subject.calibration)]
        count += 1
        return F.cross_entropy(model.forward(window)[:-1], window[1:])

    losses = spin.learn(rotations, loss, steps, RATE)
    return [rotation.detach() for rotation in rotations], losses


def measure(subject: Subject, done: Container[str]) -> Iterator[dict[str, Any]]:
    """Perplexities at W4A4 of what is not `done`. SpinQuant comes only with steps to learn in."""
    shape = subject.model.shape
    if "W4A4 RTN" not in done:
        plain = rounded(subject.model, subject.config, turned=False)
        yield {"name": "W4A4 RTN", "perplexity": perplexity(plain, subject.evaluation)}
    if "W4A4 QuaRot" not in done:
        fixed = with_rotations(subject, random_rotation(shape.width, 0), random_rotation(shape.head, 1))
        turned = rounded(fixed, subject.config, turned=True)
        yield {"name": "W4A4 QuaRot", "perplexity": perplexity(turned, subject.evaluation)}
    if subject.effort.spin_steps and "W4A4 SpinQuant" not in done:
        rotations, losses = learn(subject, subject.effort.spin_steps)
        learned = rounded(with_rotations(subject, *rotations), subject.config, turned=True)
        yield {
            "name": "W4A4 SpinQuant",
            "perplexity": perplexity(learned, subject.evaluation),
            "losses": losses,
            "steps": subject.effort.spin_steps,
        }


@torch.no_grad()
def outliers(subject: Subject, layers: tuple[int, ...] = (1, 8, 15, 22, 29)) -> list[dict[str, Any]]:
    """Of inputs of some linears, a token's largest magnitude over its root mean square, as they are and after a Hadamard turn."""
    wanted = [f"model.layers.{layer}.{part}" for layer in layers for part in ("self_attn.q_proj", "mlp.down_proj")]
    found: list[dict[str, Any]] = []

    def ratio(x: Tensor) -> float:
        return (x.abs().amax(-1) / x.pow(2).mean(-1).sqrt().clamp(min=1e-12)).mean().item()

    def see(name: str, x: Tensor) -> Tensor:
        if name in wanted:
            turned = x @ random_rotation(x.shape[-1], 0).float()
            found.append({"name": name.removeprefix("model.layers."), "before": ratio(x), "after": ratio(turned)})
        return x

    model = Llama(subject.config, {})
    model.weights, model.on_input = subject.model.weights, see
    model.forward(subject.calibration[0])
    return found

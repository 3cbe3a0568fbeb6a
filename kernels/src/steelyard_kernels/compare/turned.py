"""4-bit weights and 4-bit activations: as they are, with fixed rotations (QuaRot), and with learned ones (SpinQuant).

SmolLM2's learned rotations lie beside this file; `steelyard-kernels learn-rotations` made them (`rotation.learned`).
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from steelyard_kernels.compare.subject import Subject
from steelyard_kernels.model.llama import Llama
from steelyard_kernels.quant.groups import quantize_groups
from steelyard_kernels.rotation import learned
from steelyard_kernels.rotation.hadamard import random_rotation
from steelyard_kernels.rotation.learned import Rotations, four_bits
from steelyard_kernels.rotation.quarot import fold_norms, rotate_weights, turn_down

BITS, GROUP = 4, 64
LEARNED = Path(__file__).with_name("smollm2-rotations.safetensors")


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
def with_rotations(subject: Subject, rotations: Rotations) -> Llama:
    """The model that computes the same on rotated activations, before any rounding."""
    folded = fold_norms(subject.model.weights, subject.model.shape.layers)
    out = Llama(subject.config, {})
    out.weights = rotate_weights(folded, subject.model.shape, rotations.residual.float(), rotations.value.float())
    return out


def measure(subject: Subject, done: Container[str]) -> Iterator[dict[str, Any]]:
    """Perplexities at W4A4 of what is not `done`."""
    shape = subject.model.shape
    if "W4A4 RTN" not in done:
        plain = rounded(subject.model, subject.config, turned=False)
        yield {"name": "W4A4 RTN", **subject.judge(plain)}
    if "W4A4 QuaRot" not in done:
        fixed = with_rotations(subject, learned.fixed(shape.width, shape.head))
        yield {"name": "W4A4 QuaRot", **subject.judge(rounded(fixed, subject.config, turned=True))}
    if "W4A4 SpinQuant" not in done:
        rotations = learned.read(LEARNED, shape.width, shape.head)
        model = rounded(with_rotations(subject, rotations), subject.config, turned=True)
        yield {"name": "W4A4 SpinQuant", **subject.judge(model), "losses": rotations.losses}


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

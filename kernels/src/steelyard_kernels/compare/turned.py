"""4-bit weights and 4-bit activations: as they are, with fixed rotations (QuaRot), and with learned ones (SpinQuant), the weights
rounded and fitted by GPTQ.

SmolLM2's learned rotations lie beside this file; `steelyard-kernels learn-rotations` made them (`rotation.learned`).
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from steelyard_kernels.compare import weights
from steelyard_kernels.compare.subject import Subject
from steelyard_kernels.model.llama import Llama
from steelyard_kernels.quant.groups import quantize_groups
from steelyard_kernels.rotation import learned
from steelyard_kernels.rotation.hadamard import random_rotation
from steelyard_kernels.rotation.learned import Rotations, four_bits
from steelyard_kernels.rotation.quarot import fold_norms, rotate_weights, turn_down

BITS = 4
SLOW = ("W4A4 GPTQ", "W4A4 SpinQuant, rounded weights")  # no ordering of a quick run needs them
LEARNED = Path(__file__).with_name("smollm2-rotations.safetensors")


def turned_inputs(name: str, x: Tensor) -> Tensor:
    """Rounded to 4 bits by tokens, the input of down_proj after its turn."""
    return four_bits(turn_down(name, x))


def plain_inputs(name: str, x: Tensor) -> Tensor:
    """Rounded to 4 bits by tokens."""
    return four_bits(x)


@torch.no_grad()
def rounded(subject: Subject, model: Llama) -> Llama:
    """The weights of `model` rounded to 4 bits by groups; its inputs are as it has them."""
    names = [f"{name}.weight" for name in subject.linears()]
    changed = {name: quantize_groups(model.weights[name], BITS, weights.GROUP).dequantize() for name in names}
    return _with(model, subject, changed)


@torch.no_grad()
def fitted(subject: Subject, model: Llama) -> Llama:
    """The weights of `model` as GPTQ's codes of the same 4 bits, fitted layer by layer to the rounded inputs that they get."""
    changed, _ = weights.in_turn(subject, model, weights.gptq(BITS))
    return _with(model, subject, changed)


def _with(model: Llama, subject: Subject, changed: dict[str, Tensor]) -> Llama:
    out = Llama(subject.config, {})
    out.weights, out.on_input = {**model.weights, **changed}, model.on_input
    return out


@torch.no_grad()
def with_rotations(subject: Subject, rotations: Rotations) -> Llama:
    """The model that computes the same on rotated activations, before any rounding, where `turn_down` turns inputs."""
    folded = fold_norms(subject.model.weights, subject.model.shape.layers)
    out = Llama(subject.config, {})
    out.weights = rotate_weights(folded, subject.model.shape, rotations.residual.float(), rotations.value.float())
    return out


def measure(subject: Subject, quick: bool, done: Container[str]) -> Iterator[dict[str, Any]]:
    """Perplexities at W4A4 of what is not `done`: of three models (as it is, turned, turned by what was learned) the weights
    rounded, and then fitted by GPTQ as the papers do, so that neighbours differ by one step. A quick run leaves out two."""
    shape = subject.model.shape
    starts: tuple[tuple[str, str, Rotations | None], ...] = (
        ("W4A4 RTN", "W4A4 GPTQ", None),
        ("W4A4 QuaRot, rounded weights", "W4A4 QuaRot", learned.fixed(shape.width, shape.head)),
        ("W4A4 SpinQuant, rounded weights", "W4A4 SpinQuant", learned.read(LEARNED, shape.width, shape.head)),
    )
    for near, best, rotations in starts:
        names = [name for name in (near, best) if name not in done and not (quick and name in SLOW)]
        if not names:
            continue
        start = subject.changed({}) if rotations is None else with_rotations(subject, rotations)
        start.on_input = plain_inputs if rotations is None else turned_inputs
        for name in names:
            losses = {"losses": rotations.losses} if name == best and rotations and rotations.losses else {}
            yield {"name": name, **subject.judge((rounded if name == near else fitted)(subject, start)), **losses}


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

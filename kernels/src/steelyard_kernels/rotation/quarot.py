"""QuaRot (arXiv 2404.00456): rotate a Llama so that its activations have no outliers, without changing what it computes.

An RMS norm without gains commutes with a rotation. So the gains are first folded into the linears that follow, in fp64, and then
    R1 turns the residual stream: embedding·R1, reading linears W·R1, writing linears R1ᵀ·W, head·R1;
    R2 turns each value head: v's outputs by R2, o's inputs by R2;
    R4 turns the input of down_proj at run time (a Hadamard matrix), and its inverse is folded into the weight.
R3, the turn of queries and keys after rotation by position, changes no score and matters to a quantized cache alone: apply
`hadamard.turn` to both. R1 and R2 may be any rotation: fixed here, learned in `spin`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from steelyard_kernels.model.llama import Llama, Shape
from steelyard_kernels.rotation.hadamard import turn_ref

READERS = {
    "input_layernorm": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "post_attention_layernorm": ("mlp.gate_proj", "mlp.up_proj"),
}


def fold_norms(weights: dict[str, Tensor], layers: int) -> dict[str, Tensor]:
    """The same model with every norm's gains moved into the linears that read it; a tied head becomes its own tensor."""
    out = dict(weights)
    for layer in range(layers):
        for norm, readers in READERS.items():
            gain = out[f"model.layers.{layer}.{norm}.weight"].double()
            for reader in readers:
                name = f"model.layers.{layer}.{reader}.weight"
                out[name] = (out[name].double() * gain).float()
            out[f"model.layers.{layer}.{norm}.weight"] = torch.ones_like(gain).float()
    head = out.get("lm_head.weight", out["model.embed_tokens.weight"])
    out["lm_head.weight"] = (head.double() * out["model.norm.weight"].double()).float()
    out["model.norm.weight"] = torch.ones_like(out["model.norm.weight"])
    return out


def rotate_weights(weights: dict[str, Tensor], shape: Shape, residual: Tensor, value: Tensor) -> dict[str, Tensor]:
    """Fold R1 `residual` [width, width] and R2 `value` [head, head], and R4's inverse, into weights whose norms are folded.

    Differentiable in R1 and R2. A model with these weights must turn the input of down_proj: `turn_down`.
    """
    kind = residual.dtype
    out = dict(weights)

    def change(name: str, how: Any) -> None:
        out[name] = how(weights[name].to(kind)).float()

    heads = (-1, shape.head)
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        change(name, lambda w: w @ residual)
    for layer in range(shape.layers):
        part = f"model.layers.{layer}"
        for name in (
            f"{part}.{reader}.weight" for readers in READERS.values() for reader in readers if "v_proj" not in reader
        ):
            change(name, lambda w: w @ residual)
        change(
            f"{part}.self_attn.v_proj.weight", lambda w: (value.T @ (w @ residual).unflatten(0, heads)).flatten(0, 1)
        )
        change(f"{part}.self_attn.o_proj.weight", lambda w: residual.T @ (w.unflatten(1, heads) @ value).flatten(1))
        change(f"{part}.mlp.down_proj.weight", lambda w: residual.T @ turn_ref(w))
    return out


def turn_down(name: str, x: Tensor) -> Tensor:
    """R4, for `Llama.on_input`."""
    return turn_ref(x) if name.endswith("down_proj") else x


def rotated(model: Llama, config: dict[str, Any], residual: Tensor, value: Tensor) -> Llama:
    """A model that computes the same as `model` with rotated activations."""
    folded = fold_norms(model.weights, model.shape.layers)
    turned = Llama(config, rotate_weights(folded, model.shape, residual.double(), value.double()))
    turned.on_input = turn_down
    return turned

"""QuaRot (arXiv 2404.00456): rotate a Llama so that its activations have no outliers, without changing what it computes.

An RMS norm without gains commutes with a rotation. So the gains are first folded into the linears that follow, in fp64, and then
    R1 turns the residual stream: embedding·R1, reading linears W·R1, writing linears R1ᵀ·W, head·R1;
    R2 turns each value head: v's outputs by R2, o's inputs by R2;
    R4 turns the input of down_proj at run time (a Hadamard matrix), and its inverse is folded into the weight.
R3, the turn of queries and keys after rotation by position, changes no score and matters to a quantized cache alone: apply
`hadamard.turn` to both. R1 and R2 may be any rotation: fixed here, learned in `learned`. They need nothing at run time, so a
checkpoint may hold them for any engine; R3 and R4 need an engine that turns.

A model is rotated layer by layer (`fold_layer`, `rotate_layer`) and at its ends (`fold_ends`, `rotate_ends`), so that no more than
a layer must be in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from steelyard_kernels.model.llama import Llama, Shape
from steelyard_kernels.rotation.hadamard import turn_ref

READERS = {
    "input_layernorm": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "post_attention_layernorm": ("mlp.gate_proj", "mlp.up_proj"),
}
WRITERS = ("self_attn.o_proj", "mlp.down_proj")
EMBEDDING, LAST_NORM, HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"
Weights = dict[str, Tensor]


def fold_layer(weights: Mapping[str, Tensor], prefix: str) -> Weights:
    """One layer's tensors with the norms' gains moved into the linears that read them."""
    out = dict(weights)
    for norm, readers in READERS.items():
        gain = out[f"{prefix}.{norm}.weight"].double()
        for reader in readers:
            name = f"{prefix}.{reader}.weight"
            out[name] = (out[name].double() * gain).float()
        out[f"{prefix}.{norm}.weight"] = torch.ones_like(gain).float()
    return out


def fold_ends(weights: Mapping[str, Tensor]) -> Weights:
    """Embedding, last norm and head with the gains moved into the head; a tied head becomes its own tensor."""
    out = dict(weights)
    head = out.get(HEAD, out[EMBEDDING])
    out[HEAD] = (head.double() * out[LAST_NORM].double()).float()
    out[LAST_NORM] = torch.ones_like(out[LAST_NORM])
    return out


def rotate_layer(
    weights: Mapping[str, Tensor], prefix: str, shape: Shape, residual: Tensor, value: Tensor, turned: bool = True
) -> Weights:
    """Fold R1 `residual` [width, width] and R2 `value` [head, head] into a layer whose norms are folded.

    With `turned` R4's inverse is folded into down_proj too, whose input must then be turned (`turn_down`). Differentiable in both.
    """
    kind, out = residual.dtype, dict(weights)
    heads = (-1, shape.head)

    def change(name: str, how: Callable[[Tensor], Tensor]) -> None:
        if name in weights:
            out[name] = how(weights[name].to(kind)).float()

    for reader in (reader for readers in READERS.values() for reader in readers):
        change(f"{prefix}.{reader}.weight", lambda w: w @ residual)
    v, o = f"{prefix}.self_attn.v_proj", f"{prefix}.self_attn.o_proj"
    change(f"{v}.weight", lambda w: (value.T @ (w @ residual).unflatten(0, heads)).flatten(0, 1))
    change(f"{v}.bias", lambda b: (b.unflatten(0, heads) @ value).flatten())
    change(f"{o}.weight", lambda w: residual.T @ (w.unflatten(1, heads) @ value).flatten(1))
    change(f"{prefix}.mlp.down_proj.weight", lambda w: residual.T @ (turn_ref(w) if turned else w))
    for writer in WRITERS:
        change(f"{prefix}.{writer}.bias", lambda b: b @ residual)
    return out


def rotate_ends(weights: Mapping[str, Tensor], residual: Tensor) -> Weights:
    """Fold R1 into an embedding and a head whose norm is folded."""
    turned = {name: (weights[name].to(residual.dtype) @ residual).float() for name in (EMBEDDING, HEAD)}
    return {**weights, **turned}


def fold_norms(weights: Mapping[str, Tensor], layers: int) -> Weights:
    """`fold_layer` for all of a model, and its ends."""
    out = fold_ends(weights)
    for layer in range(layers):
        out = fold_layer(out, f"model.layers.{layer}")
    return out


def rotate_weights(weights: Mapping[str, Tensor], shape: Shape, residual: Tensor, value: Tensor) -> Weights:
    """`rotate_layer` for all of a model whose norms are folded, and its ends; needs `turn_down`."""
    out = rotate_ends(weights, residual)
    for layer in range(shape.layers):
        out = rotate_layer(out, f"model.layers.{layer}", shape, residual, value)
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

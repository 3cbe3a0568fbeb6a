"""A Llama in plain torch, in fp32, one sequence at a time: small enough to read, open where techniques change it.

    h = h + O·attention(norm(h));  h = h + down(silu(gate(norm(h))) · up(norm(h)))
Linears add a bias where the weights have one, as Qwen 2's q, k and v do; rotary rates may be stretched as Llama 3's are.
A quantizer replaces weights in `weights`; `on_input` sees each linear's input (calibration) and may return another one (quantized
or rotated activations). Attention asks a `kv.cache.Cache` a layer for the keys and values that a query may see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from steelyard_kernels.attention.rotary import Stretch, rates_of, rotate_ref
from steelyard_kernels.kv.cache import Cache, WholeCache

OnInput = Callable[[str, Tensor], Tensor]


class Shape(NamedTuple):
    """Sizes of the model; `head` is the width of one attention head."""

    layers: int
    width: int
    hidden: int
    heads: int
    kv_heads: int
    head: int
    theta: float
    epsilon: float
    stretch: Stretch | None = None

    @staticmethod
    def of(config: Mapping[str, Any]) -> Shape:
        """The sizes in a config.json, also one written by transformers 5, which keeps θ among `rope_parameters`.

        ValueError where rotary rates are scaled in a way that is not computed here.
        """
        heads, width = config["num_attention_heads"], config["hidden_size"]
        theta = config.get("rope_theta") or (config.get("rope_parameters") or {}).get("rope_theta", 10000.0)
        return Shape(
            config["num_hidden_layers"],
            width,
            config["intermediate_size"],
            heads,
            config.get("num_key_value_heads") or heads,
            config.get("head_dim") or width // heads,
            theta,
            config["rms_norm_eps"],
            stretch_of(config),
        )


def stretch_of(config: Mapping[str, Any]) -> Stretch | None:
    """How a config.json scales rotary rates; ValueError names a way that is not computed here."""
    scaling = config.get("rope_scaling") or config.get("rope_parameters") or {}
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    if kind == "default":
        return None
    if kind == "linear":
        return Stretch(scaling["factor"])
    if kind == "llama3":
        first = scaling["original_max_position_embeddings"]
        return Stretch(scaling["factor"], first, scaling["low_freq_factor"], scaling["high_freq_factor"])
    raise ValueError(f"rope scaling {kind!r} is not computed here; linear and llama3 are")


class Llama:
    """Weights by Hugging Face's names, and the forward pass."""

    def __init__(self, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        self.shape = Shape.of(config)
        self.rates = rates_of(self.shape.head, self.shape.theta, self.shape.stretch)
        self.weights = {name: tensor.float() for name, tensor in tensors.items()}
        self.on_input: OnInput | None = None

    def linears(self) -> Iterator[str]:
        """The names of the layers' linears, in the order of computation."""
        for layer in range(self.shape.layers):
            for part in ("q", "k", "v", "o"):
                yield f"model.layers.{layer}.self_attn.{part}_proj"
            for part in ("gate", "up", "down"):
                yield f"model.layers.{layer}.mlp.{part}_proj"

    def new_caches(self) -> list[Cache]:
        """A cache a layer that keeps everything."""
        return [WholeCache() for _ in range(self.shape.layers)]

    def forward(self, tokens: Tensor, caches: Sequence[Cache] | None = None) -> Tensor:
        """Logits [new, vocabulary] of the new tokens [new], which follow those in the caches."""
        caches = caches if caches is not None else self.new_caches()
        hidden = self.weights["model.embed_tokens.weight"][tokens]
        for layer, cache in enumerate(caches):
            hidden = self.layer(layer, hidden, cache)
        return self.logits(hidden)

    def layer(self, layer: int, hidden: Tensor, cache: Cache) -> Tensor:
        """One layer's work on hidden [new, width]; needs that layer's weights only."""
        name = f"model.layers.{layer}"
        hidden = hidden + self._attention(f"{name}.self_attn", self._norm(f"{name}.input_layernorm", hidden), cache)
        inner = self._norm(f"{name}.post_attention_layernorm", hidden)
        gate, up = self._linear(f"{name}.mlp.gate_proj", inner), self._linear(f"{name}.mlp.up_proj", inner)
        return hidden + self._linear(f"{name}.mlp.down_proj", F.silu(gate) * up)

    def logits(self, hidden: Tensor) -> Tensor:
        """The last norm and the head: [new, width] → [new, vocabulary]."""
        head = self.weights.get("lm_head.weight")
        head = self.weights["model.embed_tokens.weight"] if head is None else head
        return self._norm("model.norm", hidden) @ head.T

    def _attention(self, name: str, x: Tensor, cache: Cache) -> Tensor:
        shape, new = self.shape, len(x)
        q, k, v = (self._linear(f"{name}.{part}_proj", x).view(new, -1, shape.head).transpose(0, 1) for part in "qkv")
        positions = torch.arange(cache.seen, cache.seen + new)
        if cache.rotates_at_read:
            keys, values = cache.extend(k, v)
            places = torch.arange(keys.shape[1])
            keys, q = rotate_ref(keys, places, self.rates), rotate_ref(q, places[-new:], self.rates)
        else:
            keys, values = cache.extend(rotate_ref(k, positions, self.rates), v)
            q = rotate_ref(q, positions, self.rates)
        repeat = shape.heads // keys.shape[0]
        keys, values = keys.float().repeat_interleave(repeat, 0), values.float().repeat_interleave(repeat, 0)
        scores = q @ keys.transpose(1, 2) / shape.head**0.5
        # The new tokens are the last columns; each sees those before it and itself.
        unseen = torch.ones(new, keys.shape[1], dtype=torch.bool).triu(keys.shape[1] - new + 1)
        probabilities = scores.masked_fill(unseen, float("-inf")).softmax(-1)
        cache.settle(probabilities)
        return self._linear(f"{name}.o_proj", (probabilities @ values).transpose(0, 1).reshape(new, -1))

    def _linear(self, name: str, x: Tensor) -> Tensor:
        if self.on_input is not None:
            x = self.on_input(name, x)
        return F.linear(x, self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias"))

    def _norm(self, name: str, x: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weights[f"{name}.weight"], self.shape.epsilon)


@torch.no_grad()
def greedy(model: Llama, tokens: Sequence[int], count: int, caches: Sequence[Cache] | None = None) -> list[int]:
    """The `count` most likely next tokens, one after another."""
    caches = caches if caches is not None else model.new_caches()
    out: list[int] = []
    logits = model.forward(torch.tensor(tokens), caches)
    for _ in range(count):
        out.append(int(logits[-1].argmax()))
        if len(out) < count:
            logits = model.forward(torch.tensor(out[-1:]), caches)
    return out


@torch.no_grad()
def negative_log_likelihood(model: Llama, tokens: Tensor, window: int) -> float:
    """Mean −ln p of a token given those before it in its window; e to this power is the perplexity."""
    windows = tokens[: len(tokens) // window * window].view(-1, window)
    if not len(windows):
        raise ValueError(f"the text has {len(tokens)} tokens, less than one window of {window}")
    losses = [F.cross_entropy(model.forward(part)[:-1], part[1:]) for part in windows]
    return torch.stack(losses).mean().item()

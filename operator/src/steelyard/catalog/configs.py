"""Read a model's shape from the facts of its `config.json`.

Known are the keys of dense, grouped-query, latent (DeepSeek's MLA), mixture-of-experts, sliding-window and hybrid
(linear attention) models. A key that is missing where it is needed raises `ConfigError` with its name: a guess would
end in a pod that runs out of memory.
"""

from collections.abc import Mapping
from typing import Any

from steelyard.catalog.shapes import Attention, Experts, Kind, Shape

Config = Mapping[str, Any]


class ConfigError(ValueError):
    """A config.json that does not say what planning needs."""


def read(config: Config) -> Shape:
    """Count the weights and the attention of a model; multimodal files hold them under `text_config`."""
    text: Config = {**config, **config["text_config"]} if "text_config" in config else config
    hidden, layers = _count(text, "hidden_size"), _count(text, "num_hidden_layers")
    attention = _attention(text, hidden, layers)
    experts, dense_layers, shared = _experts(text, hidden, layers)
    width = text.get("intermediate_size") or text.get("ffn_dim")
    if dense_layers and not width:
        raise ConfigError("config.json has no intermediate_size")
    matrices = 2 if text.get("model_type") == "opt" or text.get("ffn_dim") else 3
    dense = dense_layers * matrices * hidden * int(width or 0) + shared
    dense += sum(group.layers * _attention_weights(text, group, hidden) for group in attention)
    return Shape(
        hidden=hidden,
        vocabulary=_count(text, "vocab_size"),
        tied=bool(text.get("tie_word_embeddings", False)),
        attention=attention,
        dense=dense,
        experts=experts,
        context=text.get("max_position_embeddings"),
    )


def checkpoint_format(config: Config) -> str | None:
    """Name the format that a checkpoint is stored in (a key of `formats.toml`); None: 16 bits, or not known."""
    stored = config.get("quantization_config") or {}
    method, bits = stored.get("quant_method"), stored.get("bits")
    if method in ("fp8", "fbgemm_fp8"):
        return "fp8"
    if method in ("awq", "gptq", "mxfp4"):
        return {"awq": "int4-awq", "gptq": "int8" if bits == 8 else "int4-gptq", "mxfp4": "mxfp4"}[method]
    if method == "compressed-tensors":
        return {"float-quantized": "fp8", "int-quantized": "int8", "pack-quantized": "int4-gptq",
                "nvfp4-pack-quantized": "nvfp4", "mxfp4-pack-quantized": "mxfp4"}.get(stored.get("format", ""))  # fmt: skip
    return "ternary" if method == "bitnet" else None


def _attention(text: Config, hidden: int, layers: int) -> tuple[Attention, ...]:
    """Group the layers by kind; a `layer_types` list rules, else a window and its pattern."""
    types = text.get("layer_types")
    window = text.get("sliding_window") if text.get("use_sliding_window", True) else None
    if types is None:
        pattern = text.get("sliding_window_pattern")
        if window and pattern:  # each pattern-th layer is full
            types = ["full_attention" if (i + 1) % pattern == 0 else "sliding_attention" for i in range(layers)]
        else:
            types = ["sliding_attention" if window else "full_attention"] * layers
    groups = []
    for kind in dict.fromkeys(types):
        count = sum(1 for other in types if other == kind)
        if kind in ("linear_attention", "mamba"):
            groups.append(_linear(text, count))
        else:
            groups.append(_softmax(text, hidden, count, (window or 0) if kind == "sliding_attention" else 0))
    return tuple(groups)


def _softmax(text: Config, hidden: int, layers: int, window: int) -> Attention:
    heads = _count(text, "num_attention_heads")
    if text.get("kv_lora_rank"):
        rank, rotary = _count(text, "kv_lora_rank"), _count(text, "qk_rope_head_dim")
        key, value = _count(text, "qk_nope_head_dim") + rotary, _count(text, "v_head_dim")
        return Attention(layers, Kind.LATENT, heads, heads, key, value, latent=rank + rotary, rank=rank)
    head = int(text.get("head_dim") or hidden // heads)
    kv_heads = int(text.get("num_key_value_heads") or heads)
    return Attention(layers, Kind.SLIDING if window else Kind.FULL, heads, kv_heads, head, head, window=window)


def _linear(text: Config, layers: int) -> Attention:
    """Gated delta layers: a matrix of key by value width for each value head, and the last inputs of a convolution."""
    keys, values = _count(text, "linear_num_key_heads"), _count(text, "linear_num_value_heads")
    key, value = _count(text, "linear_key_head_dim"), _count(text, "linear_value_head_dim")
    convolved = (int(text.get("linear_conv_kernel_dim") or 1) - 1) * (2 * keys * key + values * value)
    return Attention(layers, Kind.LINEAR, values, keys, key, value, state=values * key * value + convolved)


def _attention_weights(text: Config, group: Attention, hidden: int) -> int:
    """Weights of the projections of one layer."""
    if group.kind is Kind.LATENT:
        rank, query_rank = group.rank, int(text.get("q_lora_rank") or 0)
        queries = query_rank * (hidden + group.heads * group.key) if query_rank else hidden * group.heads * group.key
        rotary = group.latent - rank
        up = rank * group.heads * (group.key - rotary + group.value)
        return queries + hidden * group.latent + up + group.heads * group.value * hidden
    if group.kind is Kind.LINEAR:
        inner, keys = group.heads * group.value, group.kv_heads * group.key
        return hidden * (2 * keys + 2 * inner + 2 * group.heads) + inner * hidden  # q k v gate, decay and rate; out
    gate = group.heads * group.key * hidden if text.get("attn_output_gate") else 0
    return hidden * group.heads * 2 * group.key + hidden * group.kv_heads * 2 * group.key + gate


def _experts(text: Config, hidden: int, layers: int) -> tuple[Experts | None, int, int]:
    """Give the experts, the layers that have a dense feed-forward instead, and the weights that all tokens share."""
    count = text.get("n_routed_experts") or text.get("num_local_experts") or text.get("num_experts")
    if not count or int(count) < 2:
        return None, layers, 0
    width = int(text.get("moe_intermediate_size") or text.get("intermediate_size") or 0)
    if not width:
        raise ConfigError("config.json has experts, but neither moe_intermediate_size nor intermediate_size")
    step = int(text.get("decoder_sparse_step") or text.get("moe_layer_freq") or 1)
    first, dense_only = int(text.get("first_k_dense_replace") or 0), set(text.get("mlp_only_layers") or ())
    sparse = sum(1 for i in range(layers) if i >= first and i not in dense_only and (i + 1) % step == 0)
    experts = Experts(sparse, int(count), _active(text), 3 * hidden * width)
    shared_width = int(text.get("shared_expert_intermediate_size") or 0)
    shared_width += int(text.get("n_shared_experts") or 0) * width
    return experts, layers - sparse, sparse * (3 * hidden * shared_width + hidden * int(count))


def _active(text: Config) -> int:
    for key in ("num_experts_per_tok", "experts_per_token", "num_experts_per_token"):
        if text.get(key):
            return int(text[key])
    raise ConfigError("config.json has experts, but no num_experts_per_tok")


def _count(text: Config, key: str) -> int:
    if not isinstance(text.get(key), int) or text[key] < 1:
        raise ConfigError(f"config.json has no {key}")
    return int(text[key])

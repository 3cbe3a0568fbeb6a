"""A model's shape from the facts that a manifest gives, laid over the catalogue's where there is one."""

from typing import Any

from steelyard.api.model import ModelShape
from steelyard.catalog import configs
from steelyard.catalog.configs import ConfigError
from steelyard.catalog.shapes import Attention, Experts, Kind, Shape
from steelyard.decide.model.roofline import TYPICAL_HEAD

ROUNDED = 0.02  # a number of weights may be off by, as people write it


def shape_of(facts: ModelShape, known: Shape | None) -> Shape | None:
    """Give the shape; None where layers, width or size are missing.

    Written facts count, so a catalogue's shape is only taken where none is written that would contradict it.
    """
    if known is not None and _agrees(facts, known):
        return known
    if facts.layers is None or facts.hidden_size is None:
        return known if facts == ModelShape() else None
    counted = _counted(facts)
    if counted is None and facts.parameters is None:
        return None
    return counted if counted is not None and facts.parameters is None else _scaled(facts, counted)


def _agrees(facts: ModelShape, known: Shape) -> bool:
    """Whether nothing that is written differs from the catalogue; a number of weights is written rounded."""
    written = {"layers": (facts.layers, known.layers), "hidden": (facts.hidden_size, known.hidden),
               "vocabulary": (facts.vocabulary, known.vocabulary)}  # fmt: skip
    if any(value is not None and value != other for value, other in written.values()):
        return False
    return facts.parameters is None or abs(facts.parameters / known.parameters - 1) < ROUNDED


def _counted(facts: ModelShape) -> Shape | None:
    """Count from the facts as config.json would name them; None where they do not suffice."""
    rank, rotary = facts.kv_rank, facts.rope_dimension or 64
    head = facts.head_dimension or TYPICAL_HEAD
    config: dict[str, Any] = {
        "num_hidden_layers": facts.layers, "hidden_size": facts.hidden_size, "num_attention_heads": facts.attention_heads,
        "num_key_value_heads": facts.kv_heads, "head_dim": facts.head_dimension, "intermediate_size": facts.intermediate_size,
        "vocab_size": facts.vocabulary, "tie_word_embeddings": facts.tied_embeddings or False,
        "n_routed_experts": facts.experts, "num_experts_per_tok": facts.experts_per_token,
        "n_shared_experts": facts.shared_experts, "moe_intermediate_size": facts.expert_intermediate_size,
        "first_k_dense_replace": facts.dense_layers, "sliding_window": facts.sliding_window,
    }  # fmt: skip
    if rank is not None:
        config |= {"kv_lora_rank": rank, "qk_rope_head_dim": rotary, "qk_nope_head_dim": head, "v_head_dim": head}
    if facts.sliding_window and facts.sliding_layers is not None and facts.layers is not None:
        sliding = min(facts.sliding_layers, facts.layers)
        config["layer_types"] = ["sliding_attention"] * sliding + ["full_attention"] * (facts.layers - sliding)
    try:
        return _with_states(configs.read({key: value for key, value in config.items() if value is not None}), facts)
    except ConfigError:
        return None


def _with_states(shape: Shape, facts: ModelShape) -> Shape:
    """Turn the layers that keep a fixed state from full ones into linear ones."""
    if not facts.state_layers:
        return shape
    first, *others = shape.attention
    linear = min(facts.state_layers, first.layers)
    state = (facts.state_bytes or 0) // 2
    groups = [Attention(linear, Kind.LINEAR, first.heads, first.heads, first.key, first.value, state=state)]
    if first.layers > linear:
        groups.insert(0, Attention(first.layers - linear, first.kind, first.heads, first.kv_heads, first.key, first.value,
                                   first.window, first.latent, first.rank))  # fmt: skip
    return Shape(
        shape.hidden, shape.vocabulary, shape.tied, (*groups, *others), shape.dense, shape.experts, shape.context
    )


def _scaled(facts: ModelShape, counted: Shape | None) -> Shape | None:
    """Take the written number of weights: what the counted parts do not explain is dense, less where it was rounded down."""
    assert facts.layers is not None
    assert facts.hidden_size is not None
    assert facts.parameters is not None
    heads = facts.attention_heads or max(1, facts.hidden_size // TYPICAL_HEAD)
    head = facts.head_dimension or max(1, facts.hidden_size // heads)
    vocabulary = facts.vocabulary or 0
    tied = bool(facts.tied_embeddings)
    edges = vocabulary * facts.hidden_size * (1 if tied else 2)
    rest = facts.parameters - counted.parameters if counted is not None else 0
    if counted is not None and rest >= -ROUNDED * facts.parameters and counted.dense + rest >= 0:
        return Shape(
            counted.hidden, counted.vocabulary, counted.tied, counted.attention, counted.dense + rest, counted.experts
        )
    group = Attention(facts.layers, Kind.FULL, heads, facts.kv_heads or heads, head, head, window=0)
    experts = None
    if (
        facts.experts
        and facts.active_parameters
        and facts.experts_per_token
        and facts.parameters > facts.active_parameters
    ):
        share = (facts.parameters - facts.active_parameters) / (facts.experts - facts.experts_per_token)
        experts = Experts(facts.layers, facts.experts, facts.experts_per_token, max(1, round(share / facts.layers)))
    dense = max(0, facts.parameters - edges - (experts.total if experts else 0))
    return Shape(facts.hidden_size, vocabulary, tied, (group,), dense, experts)

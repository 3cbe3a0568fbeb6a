"""Small files for llama.cpp that nobody trained: a LoRA adapter, and a ternary model with another model's vocabulary."""

from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter
from gguf.quants import quantize
from numpy.typing import NDArray

_WIDTH, _INNER, _HEADS, _LAYERS = 256, 512, 4, 2  # rows of a ternary matrix are multiples of 256


def adapter(path: Path, layers: int, width: int, strength: float, seed: int) -> Path:
    """Write a LoRA adapter of rank 4 for the output of each attention, with random matrices in bfloat16."""
    draw = np.random.default_rng(seed)
    writer = GGUFWriter(path, "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", 4.0)
    for layer in range(layers):
        name = f"blk.{layer}.attn_output.weight"
        for part, shape in (("lora_a", (4, width)), ("lora_b", (width, 4))):
            _add(writer, f"{name}.{part}", draw.normal(0, strength, shape), GGMLQuantizationType.BF16)
    return _written(writer, path)


def ternary(path: Path, vocabulary: Path) -> Path:
    """Write a Llama of two narrow layers whose matrices are −1, 0 and 1 times a scale (BitNet's, packed as TQ2_0)."""
    draw = np.random.default_rng(3)
    reader = GGUFReader(vocabulary)
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(512)
    writer.add_embedding_length(_WIDTH)
    writer.add_block_count(_LAYERS)
    writer.add_feed_forward_length(_INNER)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_HEADS)
    writer.add_rope_dimension_count(_WIDTH // _HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    for key, field in reader.fields.items():
        if key.startswith("tokenizer."):
            inner = field.types[1] if len(field.types) > 1 else None
            writer.add_key_value(key, field.contents(), field.types[0], inner)
    words = len(reader.fields["tokenizer.ggml.tokens"].data)
    shapes = {"attn_q": (_WIDTH, _WIDTH), "attn_k": (_WIDTH, _WIDTH), "attn_v": (_WIDTH, _WIDTH)}
    shapes |= {"attn_output": (_WIDTH, _WIDTH), "ffn_gate": (_INNER, _WIDTH), "ffn_up": (_INNER, _WIDTH)}
    shapes |= {"ffn_down": (_WIDTH, _INNER)}
    _add(writer, "token_embd.weight", draw.normal(0, 1, (words, _WIDTH)), GGMLQuantizationType.F16)
    _add(writer, "output_norm.weight", np.ones(_WIDTH), GGMLQuantizationType.F32)
    for layer in range(_LAYERS):
        for norm in ("attn_norm", "ffn_norm"):
            _add(writer, f"blk.{layer}.{norm}.weight", np.ones(_WIDTH), GGMLQuantizationType.F32)
        for name, shape in shapes.items():
            values = draw.integers(-1, 2, shape) * 0.05
            _add(writer, f"blk.{layer}.{name}.weight", values, GGMLQuantizationType.TQ2_0)
    return _written(writer, path)


def _add(writer: GGUFWriter, name: str, values: NDArray[np.float64], kind: GGMLQuantizationType) -> None:
    writer.add_tensor(name, quantize(values.astype(np.float32), kind), raw_dtype=kind)


def _written(writer: GGUFWriter, path: Path) -> Path:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
